"""Check the JSON Schemas that a file declares, and that their defaults match them."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from raincheck.workflows.parsing.models import object_schema
from raincheck.workflows.parsing.source import KeyPath


def check_properties(properties: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the errors of JSON Schemas by name, each with its path."""
    for name, schema in object_schema(properties)["properties"].items():
        for route, message in _check_one_schema(schema):
            yield (name, *route), message


def _check_one_schema(schema: Any) -> Iterator[tuple[KeyPath, str]]:  # noqa: ANN401 - any YAML value
    if not isinstance(schema, dict):
        yield (), "a JSON Schema is a mapping, such as {type: string}"
        return
    yield from _check_schema(cast("dict[str, Any]", schema))


def _check_schema(schema: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    try:
        Draft202012Validator.check_schema(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    except SchemaError as error:
        yield tuple(error.absolute_path), f"this is not a valid JSON Schema: {error.message}"
        return
    if "default" not in schema:
        return
    try:
        for message in schema_errors(schema, schema["default"]):
            yield ("default",), f"the default does not match the schema: {message}"
    except Unresolvable as error:
        yield (), f"it has a reference that can't be resolved: {error}"


def schema_errors(schema: Any, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the errors of a value against a schema.

    Raises:
        Unresolvable: the schema has a reference that can't be resolved.
    """
    # The registry is empty, so that no schema can make us fetch a remote reference.
    validator: Any = Draft202012Validator(schema, registry=Registry())
    yield from (error.message for error in validator.iter_errors(value))
