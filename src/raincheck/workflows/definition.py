"""What every workflow is to those who serve, list or start it: a pipeline or a state machine.

What is wrong with a file of workflows: every fault at once, each with its line.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from raincheck.core.payload import Json
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError


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
