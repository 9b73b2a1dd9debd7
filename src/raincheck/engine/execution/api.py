"""What a context asks of its attempt, wherever the body runs: in the event loop, in a thread, in another process.

Everything that goes over the desk is JSON, so the same few calls serve all three. Whoever asks after the attempt
has been told to stop gets `asyncio.CancelledError`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from raincheck.core.payload import Json, decode
from raincheck.core.records import InputKind, View


@dataclass(frozen=True, slots=True)
class Facts:
    """What a body may know of its task before it asks for anything."""

    id: str
    owner: str
    """The owner's key."""
    tool: str
    version: str
    attempt: int
    caller: Json
    variables: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class StepTurn:
    """Whether a step was finished before, and then with what; else as which use of its name it is to be recorded."""

    occurrence: int
    is_recorded: bool = False
    result: Json = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a task ended, and with what."""

    phase: str
    is_error: bool
    outcome: Json
    message: str | None

    @classmethod
    def of(cls, view: View) -> Self:
        outcome = None if view.outcome is None else decode(view.outcome)
        return cls(view.task.phase, view.task.is_error, outcome, view.task.status_message)


class Desk(Protocol):
    """The calls of a context."""

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        """Say how far it is. Written now and then, the last one always."""
        ...

    async def begin_step(self, name: str, fingerprint: str) -> StepTurn:
        """Before a step: was it finished by an earlier attempt? If not, it is taken to be under way."""
        ...

    async def finish_step(self, name: str, turn: StepTurn, fingerprint: str, result: Json) -> None:
        """Record the result of a step that was begun."""
        ...

    def drop_step(self, name: str, occurrence: int) -> None:
        """A step that was begun came to nothing. May be called from any thread."""
        ...

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        """Ask the caller, once, and wait for the answer."""
        ...

    async def sleep(self, seconds: float, name: str | None) -> None:
        """Return when so many seconds have passed since it was first asked for, by whichever attempt."""
        ...

    async def set_variables(self, variables: Mapping[str, Json]) -> None:
        """Keep the whole map of variables."""
        ...

    async def keep_artifact(self, name: str, content: Json) -> None:
        """Keep an intermediate result."""
        ...

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        """Start a child task, once, and give its id."""
        ...

    async def child_outcome(self, child_id: str) -> Ended:
        """Wait until the child has ended."""
        ...

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        """Name a task to start when this one completes, and give its id."""
        ...
