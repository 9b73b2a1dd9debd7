"""What every workflow is to those who serve, list or start it: a pipeline or a state machine.

What is wrong with a file of workflows: every fault at once, each with its line.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from raincheck.core.payload import Json
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError, InvalidValue


class Definition(Protocol):
    """A workflow that can be run."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def description(self) -> str | None: ...

    @property
    def input_schema(self) -> Mapping[str, Json]:
        """The JSON Schema of its arguments."""
        ...

    def tool(self) -> TaskTool:
        """What runs its tasks."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing that is wrong."""

    file: str
    line: int
    """Counted from 1."""
    where: str
    """The way to it, such as `workflows.release.steps.build.run`; empty if it is about the whole file."""
    message: str
    """What is wrong, and what to do."""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{self.file}:{self.line}: {where}{self.message}"


class WorkflowFaults(ConfigurationError):
    """Files of workflows that can't be used. The message has a line for each fault."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(set(faults)))
        super().__init__("\n".join(map(str, self.faults)))


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
