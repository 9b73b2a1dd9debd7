"""Levels of requirements, outcomes of checks, and the assertions that checks share. Each error names its field."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum

from raincheck.conformance.connection import Message, RpcResponse, is_object, shorten

RELATED_TASK = "io.modelcontextprotocol/related-task"
IMMEDIATE_RESPONSE = "io.modelcontextprotocol/model-immediate-response"

TERMINAL = frozenset({"completed", "failed", "cancelled"})
STATUSES = TERMINAL | {"working", "input_required"}

INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


class RequirementLevel(StrEnum):
    """The level of a requirement, in the terms of the specification."""

    MUST = "MUST"
    """A server that does not do it fails the check."""

    MUST_NOT = "MUST NOT"
    """A server that does it fails the check."""

    SHOULD = "SHOULD"
    """A server that does not do it gets a warning, since it may have a reason."""

    SHOULD_NOT = "SHOULD NOT"
    """A server that does it gets a warning, since it may have a reason."""

    @property
    def is_binding(self) -> bool:
        """Whether a server that does not meet the requirement fails."""
        return self in (RequirementLevel.MUST, RequirementLevel.MUST_NOT)


class CheckOutcome(StrEnum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    WARNING = "warning"
    SKIPPED = "skipped"


class RequirementNotMet(Exception):
    """The server did not meet the requirement. The message states what it sent and what was expected."""


class NotApplicable(Exception):
    """The check does not apply to this server. The message states what is missing."""


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
    "taskId": (lambda value: isinstance(value, str) and value != "", "a non-empty string", True),
    "status": (lambda value: value in STATUSES, f"one of {', '.join(sorted(STATUSES))}", True),
    "createdAt": (is_iso_8601, "an ISO 8601 date with a time", True),
    "lastUpdatedAt": (is_iso_8601, "an ISO 8601 date with a time", True),
    "ttl": (lambda value: value is None or is_integer(value), "an integer or null", True),
    "pollInterval": (is_integer, "an integer, or missing", False),
    "statusMessage": (lambda value: isinstance(value, str), "a string, or missing", False),
}
"""For each field of a Task: its predicate, the description of that, and whether the field is required."""

ALL_FIELDS = tuple(_RULES)


def task_errors(task: object, *fields: str) -> Iterator[str]:
    """Yield the errors in the given fields of a Task, or in all fields if none are given."""
    if not is_object(task):
        yield f"it is {shorten(task)}; expected a Task object"
        return
    for field in fields or ALL_FIELDS:
        is_valid, description, is_required = _RULES[field]
        if field not in task:
            if is_required:
                yield f"{field} is missing; expected {description}"
        elif not is_valid(task[field]):
            yield f"{field} is {shorten(task[field])}; expected {description}"


def expect(is_met: bool, problem: str) -> None:
    """Raise `RequirementNotMet`, with the problem, unless the requirement is met."""
    if not is_met:
        raise RequirementNotMet(problem)


def expect_task(task: object, where: str, *fields: str) -> Message:
    """Return the task if the fields are valid. Raises `RequirementNotMet` otherwise."""
    errors = list(task_errors(task, *fields))
    if errors or not is_object(task):
        raise RequirementNotMet(f"{where}: {', and '.join(errors)}")
    return task


def expect_result(reply: RpcResponse) -> Message:
    """Return the result of a request that must succeed."""
    if reply.result is None:
        raise RequirementNotMet(f"{reply.method} returned {reply}; expected a result")
    return reply.result


def task_in(result: Message) -> Message:
    """Return the task in the result of a call, or an empty object if there is none."""
    task = result.get("task")
    return task if is_object(task) else {}


def expect_error(reply: RpcResponse, code: int | None, request: str) -> Message:
    """Return the error of a request that must be rejected."""
    expected = "an error" if code is None else f"the error {code}"
    if reply.error is None or (code is not None and reply.code != code):
        raise RequirementNotMet(f"{request} returned {reply}; expected {expected}")
    return reply.error


def related_task(message: object) -> object:
    """Return the id of the task that `_meta` names, or `None` if it names none."""
    meta = message.get("_meta") if is_object(message) else None
    related = meta.get(RELATED_TASK) if is_object(meta) else None
    return related.get("taskId") if is_object(related) else related


def expect_related(message: object, task_id: str, name: str) -> None:
    """Require that `_meta` names the task."""
    related_id = related_task(message)
    if related_id != task_id:
        value = "names no task" if related_id is None else f"names {shorten(related_id)}"
        raise RequirementNotMet(f'_meta["{RELATED_TASK}"] of {name} {value}; expected {{"taskId": "{task_id}"}}')


def expect_unrelated(message: object, name: str) -> None:
    """Require that `_meta` names no task."""
    if related_task(message) is not None:
        raise RequirementNotMet(f"{name} has {RELATED_TASK} in its _meta, although it has the task's id in taskId")
