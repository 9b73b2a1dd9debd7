"""Shapes of tasks-2026-07-28 and mcp-2026-07-28, generated from tests/wire/schemas by `python -m scripts.generate`."""

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from raincheck.core.values import Json


class Error(TypedDict):
    code: int
    data: NotRequired[Json]
    message: str


class TaskFields(TypedDict):
    taskId: str
    statusMessage: NotRequired[str]
    createdAt: str
    lastUpdatedAt: str
    ttlMs: int | None
    pollIntervalMs: NotRequired[int]


class Task(TaskFields):
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]


class WorkingTask(TaskFields):
    status: Literal["working"]


class InputRequiredTask(TaskFields):
    status: Literal["input_required"]
    inputRequests: Mapping[str, Mapping[str, Json]]


class CompletedTask(TaskFields):
    status: Literal["completed"]
    result: Mapping[str, Json]


class FailedTask(TaskFields):
    status: Literal["failed"]
    error: Error


class CancelledTask(TaskFields):
    status: Literal["cancelled"]


DetailedTask = WorkingTask | InputRequiredTask | CompletedTask | FailedTask | CancelledTask


class CreateTaskResult(Task):
    _meta: NotRequired[Mapping[str, Json]]
    resultType: Literal["task"]


class UpdateTaskResult(TypedDict):
    _meta: NotRequired[Mapping[str, Json]]
    resultType: Literal["complete"]


class CancelTaskResult(TypedDict):
    _meta: NotRequired[Mapping[str, Json]]
    resultType: Literal["complete"]


class InputRequiredResult(TypedDict):
    _meta: NotRequired[Mapping[str, Json]]
    inputRequests: NotRequired[Mapping[str, Mapping[str, Json]]]
    requestState: NotRequired[str]
    resultType: str
