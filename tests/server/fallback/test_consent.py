"""Anything but an answer is not consent, and errors in the fallback tools are tool errors."""

# pyright: reportUnusedFunction=false

import logging
from typing import Any

import pytest
from pydantic import BaseModel

from raincheck import TaskContext
from tests.support.server.example import ExampleServer
from tests.support.server.fallback.hosts import Model, connected_host, model_text, task_id_of
from tests.support.server.tools import add_gated

pytestmark = pytest.mark.anyio


class Confirm(BaseModel):
    """A form whose default is a yes."""

    ok: bool = True


def add_publishing(server: ExampleServer, schema: Any = Confirm) -> list[Any]:
    received: list[Any] = []

    @server.tasks.tool
    async def publish(task: TaskContext) -> str:
        reply = await task.elicit("Publish it?", schema)
        received.append((reply.action, reply.content))
        return reply.action

    return received


async def ask(model: Model) -> str:
    return task_id_of(await model.call("publish"))


@pytest.mark.parametrize("schema", [Confirm, {"type": "object"}], ids=["with a default", "without fields"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"answer": None},
        {"answer": "no"},
        {"answer": '"no"'},
        {"answer": "decline"},
        {"answer": {"action": "decline"}},
        {"answer": {"ok": "<boolean>"}},
        {"ok": False},
        {"answer": {}, "note": "no, stop"},
    ],
    ids=str,
)
async def test_anything_but_an_answer_is_not_consent(arguments: dict[str, Any], schema: Any) -> None:
    server = ExampleServer()
    received = add_publishing(server, schema)
    async with connected_host(server) as model:
        task_id = await ask(model)
        refused = await model.call("task_answer", {"task_id": task_id, **arguments})
        assert refused["isError"] is True
        assert received == []
        assert model_text(await model.call("task_answer", {"task_id": task_id, "action": "decline"})) == "decline"
    assert [action for action, _ in received] == ["decline"]


async def test_a_field_that_was_not_requested_is_rejected_and_the_question_repeated() -> None:
    server = ExampleServer()
    received = add_publishing(server)
    async with connected_host(server) as model:
        task_id = await ask(model)
        refused = await model.call("task_answer", {"task_id": task_id, "answer": {"okay": False}})
        assert model_text(refused).startswith(
            "Invalid answer: the question does not ask for okay.\npublish waits for an answer."
        )
        assert model_text(await model.call("task_answer", {"task_id": task_id, "answer": {"ok": False}})) == "accept"
    assert received == [("accept", {"ok": False})]


async def test_a_deeply_nested_text_is_rejected_like_any_other() -> None:
    server = ExampleServer()
    add_publishing(server)
    async with connected_host(server) as model:
        refused = await model.call("task_answer", {"task_id": await ask(model), "answer": "[" * 100_000})
        assert refused["isError"] is True
        assert "recursion" not in model_text(refused)


async def test_cancels_and_rejected_calls_of_the_fallback_tools_are_audited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    server = ExampleServer(fallback_wait=0.1)
    add_gated(server)
    async with connected_host(server) as model:
        task_id = task_id_of(await model.call("gated"))
        await model.call("task_cancel", {"task_id": task_id})
        await model.call("task_wait", {})
        await model.call("task_wait", {"task_id": "unknown"})
    lines: list[Any] = [getattr(one, "audit") for one in caplog.records if one.name == "raincheck.audit"]  # noqa: B009
    assert [one["event"] for one in lines if one["event"] == "cancelled"] == ["cancelled"]
    assert [one["code"] for one in lines if one["event"] == "refused"] == [-32602, -32602]


async def test_the_bodys_caller_has_the_declared_and_the_fallback_capabilities() -> None:
    server = ExampleServer(fallback_wait=0.1)
    received: list[Any] = []

    @server.tasks.tool
    async def look(task: TaskContext) -> None:
        caller = task.caller
        assert isinstance(caller, dict)
        received.append(caller["capabilities"])

    async with connected_host(server, "2025-11-25", capabilities={"sampling": {"tools": {}}}) as model:
        await model.call("look")
    assert received == [{"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}]
