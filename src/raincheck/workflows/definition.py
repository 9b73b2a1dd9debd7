"""The interface of a workflow, and the errors of invalid workflow files.

A workflow is a pipeline or a state machine. The server and the CLI serve, list and start both as a
`WorkflowDefinition`. `InvalidWorkflow` reports every error of the files at once, each with its line.
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


class WorkflowDefinition(Protocol):
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
        """Return the tool that runs its tasks."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """An error in a workflow file."""

    file: str
    line: int
    """The line number, counted from 1."""
    where: str
    """The path to the value, such as `workflows.release.steps.build.run`; empty if the whole file is meant."""
    message: str
    """The error, and how to fix it."""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{self.file}:{self.line}: {where}{self.message}"


class InvalidWorkflow(ConfigurationError):
    """Workflow files are invalid. The message has a line for each error."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(set(diagnostics)))
        super().__init__("\n".join(map(str, self.diagnostics)))


class ArgumentValidator:
    """Validates a workflow's arguments against its input schema, and fills in defaults."""

    def __init__(self, workflow: str, schema: Mapping[str, Json]) -> None:
        self._workflow = workflow
        properties = cast("Mapping[str, Mapping[str, Json]]", schema.get("properties", {}))
        self._defaults: dict[str, Json] = {
            name: definition["default"] for name, definition in properties.items() if "default" in definition
        }
        # The registry is empty, so that no schema can make us fetch a remote reference.
        self._validator: Any = Draft202012Validator(cast("Any", schema), registry=Registry())

    def validate(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        """Validate the arguments, and return them with the defaults of missing ones.

        Raises:
            InvalidValue: they do not match the input schema.
        """
        try:
            errors = sorted(self._validator.iter_errors(dict(arguments)), key=lambda error: error.json_path)
        except (Unresolvable, RecursionError) as error:
            raise InvalidValue(
                f"workflow {self._workflow!r} has an input schema with a reference that can't be resolved: fix its $ref"
            ) from error
        if errors:
            messages = "; ".join(f"{error.message} at {error.json_path}" for error in errors[:5])
            raise InvalidValue(f"workflow {self._workflow!r} does not accept these arguments: {messages}")
        return self.with_defaults(arguments)

    def with_defaults(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return arguments that are already validated, with the defaults of missing ones."""
        return {**self._defaults, **arguments}
