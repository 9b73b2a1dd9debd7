"""The task API: the calls of a context to its attempt, wherever the body runs: event loop, thread or process.

All values are JSON, so the same calls serve all three. A call after the attempt was asked to stop raises
`asyncio.CancelledError`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from raincheck.core.payload import Json, decode
from raincheck.core.records import InputKind, View


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """Facts about the task that a body has from the start."""

    id: str
    owner: str
    """The owner's key."""
    tool: str
    version: str
    attempt: int
    caller: Json
    variables: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class StepStart:
    """The recorded result of a step that an earlier attempt finished, or else the number of this use of its name."""

    occurrence: int
    is_recorded: bool = False
    result: Json = None


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The phase and the outcome of a task that has ended."""

    phase: str
    is_error: bool
    outcome: Json
    message: str | None

    @classmethod
    def from_view(cls, view: View) -> Self:
        outcome = None if view.outcome is None else decode(view.outcome)
        return cls(view.task.phase, view.task.is_error, outcome, view.task.status_message)


class TaskApi(Protocol):
    """The calls of a context."""

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        """Report progress. Written at intervals, and the last report always."""
        ...

    async def begin_step(self, name: str, fingerprint: str) -> StepStart:
        """Return the step's recorded result if an earlier attempt finished it; if not, mark it as in progress."""
        ...

    async def finish_step(self, name: str, start: StepStart, fingerprint: str, result: Json) -> None:
        """Record the result of a step in progress."""
        ...

    def drop_step(self, name: str, occurrence: int) -> None:
        """Discard a step in progress. May be called from any thread."""
        ...

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        """Ask the caller, once, and wait for the answer."""
        ...

    async def sleep(self, seconds: float, name: str | None) -> None:
        """Return when this many seconds have passed since an attempt first requested the sleep."""
        ...

    async def set_variables(self, variables: Mapping[str, Json]) -> None:
        """Store the whole map of variables."""
        ...

    async def store_artifact(self, name: str, content: Json) -> None:
        """Store an intermediate result."""
        ...

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        """Start a child task, once, and return its id."""
        ...

    async def child_outcome(self, child_id: str) -> TaskOutcome:
        """Wait until the child has ended, and return its outcome."""
        ...

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        """Set a task to start when this one completes, and return its id."""
        ...
