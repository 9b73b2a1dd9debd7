"""Shapes of mcp-2025-11-25, generated from tests/wire/schemas by `python -m scripts.generate`."""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict

from raincheck.core.values import Json


class RelatedTaskMetadata(TypedDict):
    taskId: str


TaskStatus = Literal["cancelled", "completed", "failed", "input_required", "working"]


class Task(RelatedTaskMetadata):
    createdAt: str
    lastUpdatedAt: str
    pollInterval: NotRequired[int]
    status: TaskStatus
    statusMessage: NotRequired[str]
    ttl: int | None


class CreateTaskResult(TypedDict):
    _meta: NotRequired[Mapping[str, Json]]
    task: Task


class GetTaskResult(Task):
    _meta: NotRequired[Mapping[str, Json]]


class ListTasksResult(TypedDict):
    _meta: NotRequired[Mapping[str, Json]]
    nextCursor: NotRequired[str]
    tasks: Sequence[Task]


class ProgressNotificationParams(TypedDict):
    _meta: NotRequired[Mapping[str, Json]]
    message: NotRequired[str]
    progress: float
    progressToken: str | int
    total: NotRequired[float]
