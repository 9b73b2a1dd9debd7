"""Answers that come too late: the model is told that they were not used, and what came of the task."""

# pyright: reportUnusedFunction=false

import asyncio
import logging
from typing import Any

import pytest

from raincheck import TaskContext
from tests.support.server.example import Shop
from tests.support.server.fallback.hosts import calls_in, handle_of, hosted, next_call, told
from tests.support.server.tools import Name, add_gated, add_greeting
from tests.support.server.transports import Message

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


async def test_an_answer_that_was_given_is_not_taken_again() -> None:
    shop = Shop(fallback_wait=0.2)
    gate = add_gated(shop)
    heard: list[Any] = []

    @shop.tasks.tool
    async def ask_first(task: TaskContext) -> str:
        heard.append((await task.elicit("Who are you?", Name)).content)
        await gate.pass_through(task)
        return "done"

    async with hosted(shop) as model:
        asked = await model.call("ask_first")
        running = await model.go_on(asked, name="Ada")
        assert told(running).startswith("ask_first is still running")
        for key in ({}, {"key": "elicit-0"}):
            refused = await model.call("task_answer", {"task_id": handle_of(asked), "answer": {"name": "Eve"}, **key})
            assert refused["isError"] is True
            assert "asks nothing now, and the answer was not used" in told(refused)
            assert calls_in(told(refused)) == [("task_wait", {"task_id": handle_of(asked)})]
        gate.open.set()
        assert told(await model.go_on(running)) == "done"
    assert heard == [{"name": "Ada"}]


def late(answer: Message) -> str:
    """What is told after a word that the answer came too late."""
    note, *rest = answer["content"]
    assert "had ended before this answer came, which was not used" in note["text"]
    return told({**answer, "content": rest})


async def test_who_answers_a_task_that_has_ended_is_told_so_and_gets_what_came_of_it() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with hosted(shop) as model:
        asked = await model.call("greet")
        assert told(await model.go_on(asked, name="Ada")) == "Hello, Ada!"
        again = await model.go_on(asked, name="Eve")
        assert late(again) == "Hello, Ada!"
        assert again["structuredContent"] == {"result": "Hello, Ada!"}
        asked = await model.call("greet")
        await shop.tasks.engine.cancel(handle_of(asked), reason="closing time")
        refused = await model.go_on(asked, name="Ada")
        assert refused["isError"] is True
        assert "closing time" in late(refused)
    assert len(heard) == 1


async def test_a_task_that_ends_while_its_answer_is_looked_at_is_told_as_one_that_had_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with hosted(shop) as model:
        asked = await model.call("greet")
        engine = shop.tasks.engine
        keep = engine.answer

        async def answer_too_late(task_id: str, answers: Any, **more: Any) -> Any:
            await engine.cancel(task_id, reason="closing time")
            return await keep(task_id, answers, **more)

        monkeypatch.setattr(engine, "answer", answer_too_late)
        assert "closing time" in late(await model.go_on(asked, name="Ada"))
    assert heard == []


async def test_two_answers_that_race_are_one_answer_and_a_word_that_it_was_late() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with hosted(shop) as model:
        asked = await model.call("greet")
        tool, arguments = next_call(asked)
        names = [f"name {number}" for number in range(5)]
        calls = [model.call(tool, {**arguments, "answer": {"name": name}}) for name in names]
        answers = await asyncio.gather(*calls)
        said = {one["content"][-1]["text"] for one in answers if not one.get("isError")}
        assert said == {f"Hello, {heard[0][1]['name']}!"}  # type: ignore[index]
    assert len(heard) == 1


async def test_an_answer_that_is_none_is_in_the_audit_log_whatever_is_wrong_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    shop = Shop()
    add_greeting(shop)
    async with hosted(shop) as model:
        task_id = handle_of(await model.call("greet"))
        for given in ({"answer": {"name": 7}}, {"answer": {"name": "Eve"}, "key": "elicit-7"}, {}):
            assert (await model.call("task_answer", {"task_id": task_id, **given}))["isError"]
    lines: list[Any] = [getattr(one, "audit") for one in caplog.records if one.name == "raincheck.audit"]  # noqa: B009
    refused = [(one["tool"], one["code"]) for one in lines if one["event"] == "refused"]
    assert refused == [("task_answer", -32602)] * 3
