"""Models of the task messages that servers send: strict where it matters, lenient elsewhere.

A client that failed on an odd but unimportant field would lose the task.
"""

from typing import Annotated, Any, Literal, TypeGuard, cast

from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData, Result
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from raincheck.client.updates import Question, TaskProgress, Update
from raincheck.core.lifecycle import Status
from raincheck.wire.fields import LARGEST_INTEGER, as_object
from raincheck.wire.v2026 import PROGRESS_META_KEY


def is_number(value: object) -> TypeGuard[float]:
    """Return whether the value is a finite number in the safe range: NaN and infinity are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST_INTEGER <= value <= LARGEST_INTEGER


def read_progress(done: object, total: object) -> TaskProgress | None:
    """Parse a task's progress; None if it is not a number."""
    if not is_number(done):
        return None
    return TaskProgress(float(done), float(total) if is_number(total) else None)


def _seconds(milliseconds: object) -> float | None:
    return float(milliseconds) / 1_000 if is_number(milliseconds) else None


def _status(value: object) -> Status:
    return Status(value) if isinstance(value, str) and value in set(Status) else Status.WORKING


Seconds = Annotated[float | None, BeforeValidator(_seconds)]
"""An interval that is sent in milliseconds; None if it is not a valid number."""
OptionalText = Annotated[str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)]
InitialStatus = Annotated[Status, BeforeValidator(_status)]
"""The status of a task that was just created. Only the id of such a task matters: its status can be polled."""


class _Task(Result):
    model_config = ConfigDict(extra="allow")
    task_id: str = Field(min_length=1)
    status: Status
    status_message: OptionalText = None


class Task2025(_Task):
    """A task of 2025-11-25."""

    poll_interval: Seconds = None

    def to_update(self) -> Update:
        return Update(
            task_id=self.task_id, status=self.status, message=self.status_message, poll_after=self.poll_interval
        )


class _NewTask2025(Task2025):
    status: InitialStatus = Status.WORKING


class CreatedTask2025(Result):
    """The response of 2025-11-25 to a call that asked for a task."""

    task: _NewTask2025


class CreatedTask2026(_Task):
    """The response of 2026-07-28 to a call that became a task."""

    result_type: Literal["task"] = "task"
    status: InitialStatus = Status.WORKING


FIELD_BY_STATUS = {"input_required": "inputRequests", "completed": "result", "failed": "error"}
"""The additional field of a task, by its status."""


class TaskSnapshot2026(_Task):
    """A task of 2026-07-28, with the details of its status."""

    poll_interval_ms: Seconds = None
    input_requests: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    result: dict[str, Any] | None = None
    error: ErrorData | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_foreign_fields(cls, data: object) -> object:
        """Drop fields that do not belong to the task's status, since some servers send empty ones."""
        if not isinstance(data, dict):
            return data
        fields = cast("dict[str, object]", data)
        foreign = {
            name
            for status, name in FIELD_BY_STATUS.items()
            if status != fields.get("status") or fields.get(name) is None
        }
        return {name: value for name, value in fields.items() if name not in foreign}

    def to_update(self) -> Update:
        progress = as_object((self.meta or {}).get(PROGRESS_META_KEY))
        return Update(
            task_id=self.task_id,
            status=self.status,
            message=self.status_message,
            progress=read_progress(progress.get("done"), progress.get("total")),
            poll_after=self.poll_interval_ms,
            questions=tuple(Question(key, request) for key, request in self.input_requests.items()),
            result=self.result,
            error=None if self.error is None else MCPError.from_error_data(self.error),
        )
