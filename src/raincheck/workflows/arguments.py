"""The arguments of a workflow: checked against its schema, with what was left out filled in."""

from collections.abc import Mapping
from typing import Any, cast

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from raincheck.core.payload import Json
from raincheck.errors import InvalidValue


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
