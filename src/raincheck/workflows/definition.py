"""The kinds of workflows, the files that define workflows, and the errors of invalid files.

A workflow is a pipeline or a state machine. The server and the CLI serve, list and start both as a
`WorkflowDefinition`. `InvalidWorkflow` reports every error of the files at once, each with its line.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from raincheck.core.json_schema import InvalidSchema, SchemaValidator
from raincheck.core.values import Json
from raincheck.errors import ConfigurationError, InvalidValue

if TYPE_CHECKING:
    from raincheck.workflows.load import Workflows
    from raincheck.workflows.machines.machine import Machine
    from raincheck.workflows.pipelines.pipeline import Pipeline

KeyPath: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value in a file."""

Problem: TypeAlias = tuple[KeyPath, str]
"""The path of an error within a part of a file, and its message."""


WorkflowDefinition: TypeAlias = "Pipeline | Machine"
"""A workflow that can be run."""


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
        self._validator = SchemaValidator(schema)

    def validate(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        """Validate the arguments, and return them with the defaults of missing ones.

        Raises:
            InvalidValue: they do not match the input schema.
        """
        try:
            errors = sorted(self._validator.errors(dict(arguments)), key=lambda error: error.json_path)
        except InvalidSchema as error:
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


SUFFIXES = (".yaml", ".yml")


def is_workflow_path(target: str) -> bool:
    """Return whether a target names workflows: a YAML file, or a folder of YAML files that is not a package."""
    path = Path(target)
    is_folder = path.is_dir() and not (path / "__init__.py").exists()
    return target.lower().endswith(SUFFIXES) or (is_folder and any(files_in(path)))


def files_in(path: Path) -> Iterator[Path]:
    """Yield the file itself, or the workflow files of a folder."""
    if not path.is_dir():
        yield path
        return
    yield from (file for file in sorted(path.iterdir()) if file.suffix in SUFFIXES and file.is_file())


def load_workflow_files(path: Path) -> "Workflows":
    """Load the workflows of a file or a folder. Their Python functions are imported from there or the current folder.

    Raises:
        InvalidWorkflow: they are invalid; it lists every error.
        ConfigurationError: the path does not exist, or the libraries that read workflows are not installed.
    """
    if not path.exists():
        raise ConfigurationError(f"there is no file {path} (relative to {Path.cwd()}): correct the path")
    try:
        from raincheck.workflows.load import load_workflows
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "raincheck":
            raise
        command = "pip install 'raincheck[workflows]' (in a clone: pip install '.[workflows]')"
        raise ConfigurationError(f"workflows need {error.name!r}, which is not installed: {command}") from error
    return load_workflows(path)
