"""Validate values against JSON Schemas.

No schema makes the program fetch anything: only references within the schema are resolved. `jsonschema` is imported on
first use, which takes a tenth of a second, since most programs never need it.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import ValidationError

Schema = Mapping[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of a schema that declares no other."""


class InvalidSchema(Exception):
    """A JSON Schema is invalid, or has a reference that can't be resolved."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path
        """The path of the invalid value in the schema."""


def check_schema(schema: Schema, *, dialect: str | None = None) -> None:
    """Check that a schema is valid in a dialect: by default, in the one that it declares.

    Raises:
        InvalidSchema: it is invalid.
    """
    from jsonschema.exceptions import SchemaError

    try:
        _validator_class(schema if dialect is None else {"$schema": dialect}).check_schema(schema)
    except SchemaError as error:
        raise InvalidSchema(error.message, tuple(error.absolute_path)) from error


class SchemaValidator:
    """Validates values against a schema. `check_schema` checks the schema itself."""

    def __init__(self, schema: Schema) -> None:
        from referencing import Registry

        # The registry is empty, so that no reference is fetched.
        self._validator = _validator_class(schema)(schema, registry=Registry[Any]())

    def errors(self, value: object) -> "Iterator[ValidationError]":
        """Yield the errors of a value.

        Raises:
            InvalidSchema: the schema has a reference that can't be resolved, or refers to itself without end.
        """
        from referencing.exceptions import Unresolvable

        try:
            yield from self._validator.iter_errors(value)
        except (Unresolvable, RecursionError) as error:
            raise InvalidSchema(str(error)) from error


def _validator_class(schema: Schema) -> Any:  # noqa: ANN401 - its stubs leave types open
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)
