"""Late answers: the model learns that they were not used, and gets the outcome of the task."""

# pyright: reportUnusedFunction=false

import asyncio
import logging
from typing import Any

import pytest

from raincheck import TaskContext
from tests.support.server.example import ExampleServer
from tests.support.server.fallback.hosts import connected_host, find_calls, model_text, next_call, task_id_of
from tests.support.server.tools import Name, add_gated, add_greeting
from tests.support.server.transports import Message

pytestmark = pytest.mark.anyio


async def test_a_second_answer_to_a_question_is_not_used() -> None:
    server = ExampleServer(fallback_wait=0.2)
    gate = add_gated(server)
    received: list[Any] = []

    @server.tasks.tool
    async def ask_first(task: TaskContext) -> str:
        received.append((await task.elicit("Who are you?", Name)).content)
        await gate.pass_through(task)
        return "done"

    async with connected_host(server) as model:
        asked = await model.call("ask_first")
        running = await model.call_next(asked, name="Ada")
        assert model_text(running).startswith("ask_first is still running")
        for key in ({}, {"key": "elicit-0"}):
            refused = await model.call("task_answer", {"task_id": task_id_of(asked), "answer": {"name": "Eve"}, **key})
            assert refused["isError"] is True
            assert "has no open question, so the answer was not used" in model_text(refused)
            assert find_calls(model_text(refused)) == [("task_wait", {"task_id": task_id_of(asked)})]
        gate.open.set()
        assert model_text(await model.call_next(running)) == "done"
    assert received == [{"name": "Ada"}]


def late(answer: Message) -> str:
    """The text after the note that the answer came too late."""
    note, *rest = answer["content"]
    assert "ended before this answer arrived, so the answer was not used" in note["text"]
    return model_text({**answer, "content": rest})


async def test_an_answer_to_an_ended_task_returns_a_note_and_the_outcome() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected_host(server) as model:
        asked = await model.call("greet")
        assert model_text(await model.call_next(asked, name="Ada")) == "Hello, Ada!"
        again = await model.call_next(asked, name="Eve")
        assert late(again) == "Hello, Ada!"
        assert again["structuredContent"] == {"result": "Hello, Ada!"}
        asked = await model.call("greet")
        await server.tasks.engine.cancel(task_id_of(asked), reason="closing time")
        refused = await model.call_next(asked, name="Ada")
        assert refused["isError"] is True
        assert "closing time" in late(refused)
    assert len(received) == 1


async def test_a_task_that_ends_while_its_answer_is_checked_is_reported_as_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected_host(server) as model:
        asked = await model.call("greet")
        engine = server.tasks.engine
        keep = engine.answer

        async def answer_too_late(task_id: str, answers: Any, **more: Any) -> Any:
            await engine.cancel(task_id, reason="closing time")
            return await keep(task_id, answers, **more)

        monkeypatch.setattr(engine, "answer", answer_too_late)
        assert "closing time" in late(await model.call_next(asked, name="Ada"))
    assert received == []


async def test_of_two_concurrent_answers_one_counts_and_the_other_is_late() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected_host(server) as model:
        asked = await model.call("greet")
        tool, arguments = next_call(asked)
        names = [f"name {number}" for number in range(5)]
        calls = [model.call(tool, {**arguments, "answer": {"name": name}}) for name in names]
        answers = await asyncio.gather(*calls)
        texts = {one["content"][-1]["text"] for one in answers if not one.get("isError")}
        assert texts == {f"Hello, {received[0][1]['name']}!"}  # type: ignore[index]
    assert len(received) == 1


async def test_every_rejected_answer_is_audited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    server = ExampleServer()
    add_greeting(server)
    async with connected_host(server) as model:
        task_id = task_id_of(await model.call("greet"))
        for given in ({"answer": {"name": 7}}, {"answer": {"name": "Eve"}, "key": "elicit-7"}, {}):
            assert (await model.call("task_answer", {"task_id": task_id, **given}))["isError"]
    lines: list[Any] = [getattr(one, "audit") for one in caplog.records if one.name == "raincheck.audit"]  # noqa: B009
    refused = [(one["tool"], one["code"]) for one in lines if one["event"] == "refused"]
    assert refused == [("task_answer", -32602)] * 3
