"""What servers send of a task, as it is read here: strictly where it matters, and as well as can be elsewhere.

A caller that chokes on an odd field of no importance has lost the task.
"""

from typing import Annotated, Any, Literal, TypeGuard, cast

from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData, Result
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from raincheck.client.updates import Progress, Question, Update
from raincheck.core.lifecycle import Status
from raincheck.wire.fields import LARGEST_INTEGER, as_object
from raincheck.wire.v2026 import PROGRESS


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that can be counted with: NaN and what is endless are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST_INTEGER <= value <= LARGEST_INTEGER


def read_progress(done: object, total: object) -> Progress | None:
    """How far a task is; None if that is not what is told."""
    if not is_number(done):
        return None
    return Progress(float(done), float(total) if is_number(total) else None)


def _seconds(milliseconds: object) -> float | None:
    return float(milliseconds) / 1_000 if is_number(milliseconds) else None


def _status(value: object) -> Status:
    return Status(value) if isinstance(value, str) and value in set(Status) else Status.WORKING


Seconds = Annotated[float | None, BeforeValidator(_seconds)]
"""A wait that is sent in milliseconds; None if it is no number to wait for."""
Words = Annotated[str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)]
Begins = Annotated[Status, BeforeValidator(_status)]
"""Of a task that was just made the id is all that counts. How it is can be asked."""


class _Task(Result):
    model_config = ConfigDict(extra="allow")
    task_id: str = Field(min_length=1)
    status: Status
    status_message: Words = None


class OlderTask(_Task):
    """A task of 2025-11-25."""

    poll_interval: Seconds = None

    def update(self) -> Update:
        return Update(
            task_id=self.task_id, status=self.status, message=self.status_message, poll_after=self.poll_interval
        )


class _JustMade(OlderTask):
    status: Begins = Status.WORKING


class OlderCreated(Result):
    """The answer of 2025-11-25 to a call that asked for a task."""

    task: _JustMade


class Created(_Task):
    """The answer of 2026-07-28 to a call that became a task."""

    result_type: Literal["task"] = "task"
    status: Begins = Status.WORKING


BELONGS = {"input_required": "inputRequests", "completed": "result", "failed": "error"}
"""What is told of a task besides, by its status."""


class Shown(_Task):
    """A task of 2026-07-28, with all that belongs to its status."""

    poll_interval_ms: Seconds = None
    input_requests: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    result: dict[str, Any] | None = None
    error: ErrorData | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_what_belongs(cls, told: object) -> object:
        """Without what does not belong to its status, whatever that is: some servers send empty fields."""
        if not isinstance(told, dict):
            return told
        fields = cast("dict[str, object]", told)
        foreign = {
            name for status, name in BELONGS.items() if status != fields.get("status") or fields.get(name) is None
        }
        return {name: value for name, value in fields.items() if name not in foreign}

    def update(self) -> Update:
        told = as_object((self.meta or {}).get(PROGRESS))
        return Update(
            task_id=self.task_id,
            status=self.status,
            message=self.status_message,
            progress=read_progress(told.get("done"), told.get("total")),
            poll_after=self.poll_interval_ms,
            questions=tuple(Question(key, request) for key, request in self.input_requests.items()),
            result=self.result,
            error=None if self.error is None else MCPError.from_error_data(self.error),
        )
