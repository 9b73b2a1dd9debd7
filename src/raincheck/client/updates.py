"""A task's state as the client reports it, independent of the protocol generation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.shared.exceptions import MCPError

from raincheck.core.lifecycle import Status
from raincheck.wire.fields import as_object


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a task asks."""

    key: str
    """The key that identifies the question in an answer."""
    request: Mapping[str, Any]
    """The protocol's request: its `method` and `params`."""

    @property
    def method(self) -> str:
        """`elicitation/create`, `sampling/createMessage` or `roots/list`."""
        return str(self.request.get("method", ""))

    @property
    def params(self) -> Mapping[str, Any]:
        return as_object(self.request.get("params"))

    @property
    def message(self) -> str:
        """The text of the question; empty if the request has none."""
        return str(self.params.get("message", ""))


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """A task's progress, in its own unit."""

    done: float
    total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A snapshot of a task."""

    task_id: str
    status: Status
    message: str | None = None
    """The task's status message."""
    progress: TaskProgress | None = None
    questions: tuple[Question, ...] = ()
    """The open questions, if the server reports them or they are left to `Handle.answer`."""
    server_asks: bool = False
    """Whether the server sends its questions over the connection, as before 2026."""
    poll_after: float | None = field(default=None, compare=False)
    """Seconds after which the server wants the next poll. Not part of the task itself."""
    result: Mapping[str, Any] | None = None
    """The result of a task that has ended, if the server sends it with the task."""
    error: MCPError | None = None
    """The error of a failed task, if the server sends it with the task."""

    @property
    def is_ended(self) -> bool:
        return self.status not in (Status.WORKING, Status.INPUT_REQUIRED)
