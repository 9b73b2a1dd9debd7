"""Whether what a file gives as JSON Schemas are some, and whether defaults are what they ask for.

The arguments of a workflow: checked against its schema, with what was left out filled in.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from raincheck.core.payload import Json
from raincheck.errors import InvalidValue
from raincheck.workflows.parsing.models import object_schema
from raincheck.workflows.parsing.source import Route


def check_properties(properties: Mapping[str, Any]) -> Iterator[tuple[Route, str]]:
    """What is wrong with schemas by name."""
    for name, schema in object_schema(properties)["properties"].items():
        for route, message in _check_one_schema(schema):
            yield (name, *route), message


def _check_one_schema(schema: Any) -> Iterator[tuple[Route, str]]:  # noqa: ANN401 - whatever the file says
    if not isinstance(schema, dict):
        yield (), "a JSON Schema is a mapping, such as {type: string}"
        return
    yield from _check_schema(cast("dict[str, Any]", schema))


def _check_schema(schema: dict[str, Any]) -> Iterator[tuple[Route, str]]:
    try:
        Draft202012Validator.check_schema(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    except SchemaError as error:
        yield tuple(error.absolute_path), f"this is no JSON Schema: {error.message}"
        return
    if "default" not in schema:
        return
    try:
        for message in misfits(schema, schema["default"]):
            yield ("default",), f"the default is not what the schema asks for: {message}"
    except Unresolvable as error:
        yield (), f"it refers to what is not there: {error}"


def misfits(schema: Any, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """How a value is not what a schema asks for.

    Raises:
        Unresolvable: the schema refers to what is not there.
    """
    # With an empty registry, so that no schema makes us fetch anything.
    validator: Any = Draft202012Validator(schema, registry=Registry())
    yield from (error.message for error in validator.iter_errors(value))


class Arguments:
    """What a workflow takes."""

    def __init__(self, workflow: str, schema: Mapping[str, Json]) -> None:
        self._workflow = workflow
        properties = cast("Mapping[str, Mapping[str, Json]]", schema.get("properties", {}))
        self._defaults: dict[str, Json] = {name: one["default"] for name, one in properties.items() if "default" in one}
        # With an empty registry, so that no schema makes us fetch anything.
        self._validator: Any = Draft202012Validator(cast("Any", schema), registry=Registry())

    def filled(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        """The arguments with the defaults of those that are not given.

        Raises:
            InvalidValue: they are not what the workflow takes.
        """
        try:
            errors = sorted(self._validator.iter_errors(dict(arguments)), key=lambda error: error.json_path)
        except (Unresolvable, RecursionError) as error:
            raise InvalidValue(f"workflow {self._workflow!r} has a schema that refers to what is not there") from error
        if errors:
            told = "; ".join(f"{error.message} at {error.json_path}" for error in errors[:5])
            raise InvalidValue(f"workflow {self._workflow!r} can't be run with this: {told}")
        return self.with_defaults(arguments)

    def with_defaults(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        """Arguments that were checked before, with the defaults of those that are not given."""
        return {**self._defaults, **arguments}
