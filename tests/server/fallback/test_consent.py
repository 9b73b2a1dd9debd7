"""To say nothing, or something else, is not to say yes; and what goes wrong in the five tools stays inside."""

# pyright: reportUnusedFunction=false

import logging
from typing import Any

import pytest
from pydantic import BaseModel

from raincheck import TaskContext
from tests.support.server.example import Shop
from tests.support.server.fallback.hosts import Model, handle_of, hosted, told
from tests.support.server.tools import add_gated

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


class Confirm(BaseModel):
    """One whose silence is a yes."""

    ok: bool = True


def add_publishing(shop: Shop, schema: Any = Confirm) -> list[Any]:
    heard: list[Any] = []

    @shop.tasks.tool
    async def publish(task: TaskContext) -> str:
        reply = await task.elicit("Publish it?", schema)
        heard.append((reply.action, reply.content))
        return reply.action

    return heard


async def ask(model: Model) -> str:
    return handle_of(await model.call("publish"))


@pytest.mark.parametrize("schema", [Confirm, {"type": "object"}], ids=["with a default", "without fields"])
@pytest.mark.parametrize(
    "said",
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
async def test_what_is_no_answer_is_no_consent(said: dict[str, Any], schema: Any) -> None:
    shop = Shop()
    heard = add_publishing(shop, schema)
    async with hosted(shop) as model:
        task_id = await ask(model)
        refused = await model.call("task_answer", {"task_id": task_id, **said})
        assert refused["isError"] is True
        assert heard == []
        assert told(await model.call("task_answer", {"task_id": task_id, "action": "decline"})) == "decline"
    assert [action for action, _ in heard] == ["decline"]


async def test_a_field_that_nobody_asked_for_is_refused_and_the_question_is_put_again() -> None:
    shop = Shop()
    heard = add_publishing(shop)
    async with hosted(shop) as model:
        task_id = await ask(model)
        refused = await model.call("task_answer", {"task_id": task_id, "answer": {"okay": False}})
        assert told(refused).startswith("That is no answer: okay is not asked for.\npublish waits for an answer.")
        assert told(await model.call("task_answer", {"task_id": task_id, "answer": {"ok": False}})) == "accept"
    assert heard == [("accept", {"ok": False})]


async def test_a_text_that_goes_too_deep_is_refused_like_any_other() -> None:
    shop = Shop()
    add_publishing(shop)
    async with hosted(shop) as model:
        refused = await model.call("task_answer", {"task_id": await ask(model), "answer": "[" * 100_000})
        assert refused["isError"] is True
        assert "recursion" not in told(refused)


async def test_who_cancels_by_a_tool_is_in_the_audit_log_and_so_is_who_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    shop = Shop(fallback_wait=0.1)
    add_gated(shop)
    async with hosted(shop) as model:
        task_id = handle_of(await model.call("gated"))
        await model.call("task_cancel", {"task_id": task_id})
        await model.call("task_wait", {})
        await model.call("task_wait", {"task_id": "unknown"})
    lines: list[Any] = [getattr(one, "audit") for one in caplog.records if one.name == "raincheck.audit"]  # noqa: B009
    assert [one["event"] for one in lines if one["event"] == "cancelled"] == ["cancelled"]
    assert [one["code"] for one in lines if one["event"] == "refused"] == [-32602, -32602]


async def test_what_a_host_declared_beyond_words_counts_too() -> None:
    shop = Shop(fallback_wait=0.1)
    heard: list[Any] = []

    @shop.tasks.tool
    async def look(task: TaskContext) -> None:
        caller = task.caller
        assert isinstance(caller, dict)
        heard.append(caller["capabilities"])

    async with hosted(shop, "2025-11-25", capabilities={"sampling": {"tools": {}}}) as model:
        await model.call("look")
    assert heard == [{"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}]
