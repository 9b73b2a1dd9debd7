"""Whether what a file gives as JSON Schemas are some, and whether defaults are what they ask for.

The arguments of a workflow: checked against its schema, with what was left out filled in.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

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
