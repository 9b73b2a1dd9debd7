"""The pinned schemas are complete, have no prose, and reject what strict clients reject."""

import math
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.support.schemas import definitions, validate

SCHEMAS = ["tasks-2026-07-28", "mcp-2026-07-28", "mcp-2025-11-25"]
TASK: dict[str, object] = {
    "taskId": "task-1",
    "status": "working",
    "createdAt": "2026-07-28T10:30:00.000Z",
    "lastUpdatedAt": "2026-07-28T10:30:00.000Z",
    "ttlMs": None,
    "pollIntervalMs": 500,
}


def _schemas_in(value: object) -> Iterator[dict[str, Any]]:
    """Every schema in a definition. Property names are not keywords."""
    if isinstance(value, dict):
        schema = cast("dict[str, Any]", value)
        yield schema
        for word, inner in schema.items():
            for one in cast("dict[str, Any]", inner).values() if word == "properties" else [inner]:
                yield from _schemas_in(one)
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _schemas_in(one)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_pinned_schema_is_self_contained_and_has_no_prose(name: str) -> None:
    known = definitions(name)
    for schema in [one for definition in known.values() for one in _schemas_in(definition)]:
        assert not schema.keys() & {"title", "description", "$comment", "examples"}
        if "$ref" in schema:
            assert schema["$ref"].removeprefix("#/$defs/") in known


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ttlMs", 60_000.0),
        ("ttlMs", True),
        ("ttlMs", "60000"),
        ("ttlMs", 2**53),
        ("pollIntervalMs", None),
        ("pollIntervalMs", 0.5),
        ("pollIntervalMs", math.nan),
        ("status", "canceled"),
        ("statusMessage", None),
        ("taskId", 7),
    ],
)
def test_values_that_strict_clients_reject_are_rejected(field: str, value: object) -> None:
    validate("Task", TASK)
    with pytest.raises(AssertionError, match=rf"this is no Task: at \$\.{field}, "):
        validate("Task", TASK | {field: value})


def test_a_number_that_is_none_is_refused() -> None:
    block: dict[str, object] = {"type": "text", "text": "", "annotations": {"priority": 0.5}}
    validate("TextContent", block)
    for wrong in (math.nan, math.inf, True):
        with pytest.raises(AssertionError):
            validate("TextContent", block | {"annotations": {"priority": wrong}})


def test_a_status_without_its_required_fields_is_rejected() -> None:
    validate("GetTaskResult", TASK | {"resultType": "complete"})
    for status in ("completed", "failed", "input_required"):
        with pytest.raises(AssertionError):
            validate("GetTaskResult", TASK | {"resultType": "complete", "status": status})
    with pytest.raises(AssertionError):
        validate("GetTaskResult", TASK | {"resultType": "task"})
    with pytest.raises(AssertionError):
        validate("CreateTaskResult", TASK)


def test_messages_around_a_task_are_known_too() -> None:
    ids = {"notifications": {"taskIds": ["task-1"]}}
    method = "notifications/subscriptions/acknowledged"
    validate("SubscriptionsAcknowledgedNotification", {"jsonrpc": "2.0", "method": method, "params": ids})
    error = {"code": -32602, "message": "task 'x' not found"}
    validate("JSONRPCErrorResponse", {"jsonrpc": "2.0", "id": 1, "error": error})
    with pytest.raises(AssertionError):
        validate("HeaderMismatchError", {"jsonrpc": "2.0", "id": 1, "error": error})
    with pytest.raises(LookupError, match="NoSuchThing"):
        validate("NoSuchThing", {})
