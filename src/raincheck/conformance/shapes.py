"""Validation of tasks and of the messages about them. Each error names its field."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime

from raincheck.conformance.messages import Message, RpcResponse, is_object, shorten
from raincheck.conformance.outcome import RequirementNotMet

RELATED_TASK = "io.modelcontextprotocol/related-task"
IMMEDIATE_RESPONSE = "io.modelcontextprotocol/model-immediate-response"

TERMINAL = frozenset({"completed", "failed", "cancelled"})
STATUSES = TERMINAL | {"working", "input_required"}

INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def is_integer(value: object) -> bool:
    """Return whether a JSON value is an integer: not `true`, and not `1.0`."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_iso_8601(value: object) -> bool:
    """Return whether a value is an ISO 8601 date with a time."""
    if not isinstance(value, str) or "t" not in value.lower():
        return False
    try:
        datetime.fromisoformat(value.upper())
    except ValueError:
        return False
    return True


def is_rfc_3339(value: object) -> bool:
    """Return whether a value is a date with a time and an offset, in the profile that the specification links to."""
    return is_iso_8601(value) and isinstance(value, str) and _RFC_3339.fullmatch(value) is not None


FieldRule = tuple[Callable[[object], bool], str, bool]

_RULES: dict[str, FieldRule] = {
    "taskId": (lambda value: isinstance(value, str) and value != "", "a string that is not empty", True),
    "status": (lambda value: value in STATUSES, f"one of {', '.join(sorted(STATUSES))}", True),
    "createdAt": (is_iso_8601, "an ISO 8601 date with a time", True),
    "lastUpdatedAt": (is_iso_8601, "an ISO 8601 date with a time", True),
    "ttl": (lambda value: value is None or is_integer(value), "an integer or null", True),
    "pollInterval": (is_integer, "an integer, or not there", False),
    "statusMessage": (lambda value: isinstance(value, str), "a string, or not there", False),
}
"""For each field of a Task: its predicate, the description of that, and whether the field is required."""

ALL_FIELDS = tuple(_RULES)


def task_errors(task: object, *fields: str) -> Iterator[str]:
    """Yield the errors in the given fields of a Task, or in all fields if none are given."""
    if not is_object(task):
        yield f"it is {shorten(task)}, and a Task is an object"
        return
    for field in fields or ALL_FIELDS:
        holds, words, needed = _RULES[field]
        if field not in task:
            if needed:
                yield f"{field} is missing: it is {words}"
        elif not holds(task[field]):
            yield f"{field} is {shorten(task[field])}, and should be {words}"


def expect_task(task: object, where: str, *fields: str) -> Message:
    """Return the task if the fields are valid. Raises `RequirementNotMet` otherwise."""
    faults = list(task_errors(task, *fields))
    if faults or not is_object(task):
        raise RequirementNotMet(f"{where}: {'; '.join(faults)}")
    return task


def expect_result(reply: RpcResponse) -> Message:
    """Return the result of a request that must succeed."""
    if reply.result is None:
        raise RequirementNotMet(f"{reply.method} gave {reply}, and a result was due")
    return reply.result


def task_in(result: Message) -> Message:
    """Return the task in the result of a call, or an empty object if there is none."""
    task = result.get("task")
    return task if is_object(task) else {}


def expect_error(reply: RpcResponse, code: int | None, what: str) -> Message:
    """Return the error of a request that must be rejected."""
    due = "an error" if code is None else f"the error {code}"
    if reply.error is None or (code is not None and reply.code != code):
        raise RequirementNotMet(f"{what} gave {reply}, and {due} was due")
    return reply.error


def related_task(message: object) -> object:
    """Return the id of the task that `_meta` names, or `None` if it names none."""
    meta = message.get("_meta") if is_object(message) else None
    related = meta.get(RELATED_TASK) if is_object(meta) else None
    return related.get("taskId") if is_object(related) else related


def expect_related(message: object, task_id: str, what: str) -> None:
    """Require that `_meta` names the task."""
    found = related_task(message)
    if found != task_id:
        said = "does not name a task" if found is None else f"names {shorten(found)}"
        raise RequirementNotMet(f'the _meta["{RELATED_TASK}"] of {what} {said}: it is {{"taskId": "{task_id}"}}')


def expect_unrelated(message: object, what: str) -> None:
    """Require that `_meta` names no task."""
    if related_task(message) is not None:
        raise RequirementNotMet(f"{what} has {RELATED_TASK} in its _meta, although it says the task's id itself")
