"""Whether what a step hands on can be taken: by a workflow, by a function, by whoever is asked."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from referencing.exceptions import Unresolvable

from raincheck.workflows.common_model import Properties, object_schema
from raincheck.workflows.expressions import is_open
from raincheck.workflows.schema_checks import check_properties, misfits
from raincheck.workflows.step_values import texts_in
from raincheck.workflows.yaml_values import Route

PLAIN = frozenset({"string", "number", "integer", "boolean"})
"""What a single field of a form can hold."""


def check_for_workflow(name: str, takes: Properties, given: Mapping[str, Any]) -> Iterator[tuple[Route, str]]:
    """What is wrong with the arguments for a workflow, as far as it is known before they are worked out."""
    schema = object_schema(takes)
    for missing in sorted(set(schema["required"]) - given.keys()):
        yield (), f"workflow {name!r} needs {missing!r} too"
    for argument, value in given.items():
        if argument not in takes:
            known = ", ".join(sorted(takes)) or "nothing"
            yield (argument,), f"workflow {name!r} does not take {argument!r}: it takes {known}"
        elif not any(is_open(text) for _, text in texts_in(value, ())):
            yield from (((argument,), message) for message in _misfits(schema["properties"][argument], value))


def _misfits(schema: Any, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    # A schema that is none is told of where it stands.
    if any(check_properties({"": schema})):
        return
    with suppress(Unresolvable, RecursionError):
        yield from misfits(schema, value)


def check_for_function(function: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[tuple[Route, str]]:
    """What is wrong with the names of the arguments for a function."""
    # What is written in C may have no signature.
    with suppress(ValueError):
        signature = inspect.signature(function)
        try:
            signature.bind(**dict.fromkeys(given))
        except TypeError as error:
            yield (), f"it can't be called like that: {error}"


def check_question(fields: Mapping[str, Any]) -> Iterator[tuple[Route, str]]:
    """What is wrong with the fields of a form, which are single values, or some out of a list."""
    if fields.get("type") == "object" and isinstance(fields.get("properties"), Mapping):
        yield (), "name the fields alone, without `type` and `properties`: {ok: {type: boolean}}"
        return
    wrong = list(check_properties(fields))
    yield from wrong
    for name in fields.keys() - {route[0] for route, _ in wrong}:
        if not _is_plain(fields[name]):
            message = (
                "nobody can be asked for this: a field is of type string, number, integer or boolean, or an array "
                "whose items are an enum"
            )
            yield (name,), message


def _is_plain(schema: Mapping[str, Any]) -> bool:
    if schema.get("type") in PLAIN:
        return True
    items: Any = schema.get("items")
    is_choice = isinstance(items, Mapping) and not items.keys().isdisjoint({"enum", "anyOf"})
    return schema.get("type") == "array" and is_choice
