"""What a caller sees of a task, whichever generation of the protocol it came in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.shared.exceptions import MCPError

from raincheck.core.lifecycle import Status
from raincheck.wire.fields import as_object


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a task asks."""

    key: str
    """What names it in an answer."""
    request: Mapping[str, Any]
    """The request as the protocol has it: its `method` and `params`."""

    @property
    def method(self) -> str:
        """`elicitation/create`, `sampling/createMessage` or `roots/list`."""
        return str(self.request.get("method", ""))

    @property
    def params(self) -> Mapping[str, Any]:
        return as_object(self.request.get("params"))

    @property
    def message(self) -> str:
        """What is asked, in words; empty where it is asked otherwise."""
        return str(self.params.get("message", ""))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a task is, as it counts itself."""

    done: float
    total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A task at one moment."""

    task_id: str
    status: Status
    message: str | None = None
    """What it says of itself."""
    progress: Progress | None = None
    questions: tuple[Question, ...] = ()
    """What it asks, where the server tells that, or where it is to be answered by hand."""
    asks_itself: bool = False
    """Whether the server asks by itself, over the connection, as before 2026."""
    poll_after: float | None = field(default=None, compare=False)
    """Seconds after which the server would like to be asked again. That says nothing of the task itself."""
    result: Mapping[str, Any] | None = None
    """The result of a task that has ended, where the server tells it together with the task."""
    error: MCPError | None = None
    """Why a task has failed, where the server tells that together with the task."""

    @property
    def is_ended(self) -> bool:
        return self.status not in (Status.WORKING, Status.INPUT_REQUIRED)
