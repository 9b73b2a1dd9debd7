"""Callers that answer a question with their own task: it is polled at their interval, and its result is the answer."""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raincheck.testing import FakeClock
from tests.server.v2025.elicitation.test_questions import SAID, add_all_kinds, calling
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.v2025.elicitation_caller import (
    ASKABLE,
    ElicitationCaller,
    PendingRequest,
    ServerRequest,
    connected,
)

pytestmark = pytest.mark.anyio

REQUESTS: dict[str, Any] = {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}}
WITH_TASKS: dict[str, Any] = {**ASKABLE, "tasks": {"cancel": {}, "requests": REQUESTS}}
WITHOUT_CANCEL: dict[str, Any] = {**ASKABLE, "tasks": {"requests": REQUESTS}}

MOMENT = "2026-01-01T00:00:00Z"


def theirs(status: str = "working", **more: Any) -> dict[str, Any]:
    """A task of the caller's."""
    return {"taskId": "theirs", "status": status, "createdAt": MOMENT, "lastUpdatedAt": MOMENT, "ttl": None, **more}


def make(clock: FakeClock | None = None) -> ExampleServer:
    server = ExampleServer() if clock is None else ExampleServer(clock=clock)
    add_greeting(server)
    add_all_kinds(server)
    return server


async def begin(caller: ElicitationCaller, tool: str = "greet") -> tuple[str, PendingRequest, ServerRequest]:
    task_id = await caller.start(tool)
    waiting = await caller.wait(task_id)
    return task_id, waiting, await caller.question()


async def expect(caller: ElicitationCaller, method: str) -> ServerRequest:
    """The next request of the server, which is about the caller's task."""
    asked = await caller.question()
    assert (asked.method, asked.params) == (method, {"taskId": "theirs"})
    return asked


@pytest.mark.parametrize(
    ("tool", "method", "answer"),
    [("greet", "elicitation/create", YES), ("sample", "sampling/createMessage", SAID)],
)
async def test_a_caller_that_takes_its_time_is_polled_at_its_pace_and_its_result_taken(
    tool: str, method: str, answer: dict[str, Any]
) -> None:
    clock = FakeClock()
    async with connected(make(clock), capabilities=WITH_TASKS) as caller:
        task_id, waiting, question = await begin(caller, tool)
        assert (question.method, question.task_id, question.params["task"]) == (method, task_id, {})
        await caller.reply(question, result={"task": theirs(pollInterval=5_000)})
        # Its poll interval may change, and so may its status message.
        for pace, status in ((5, "working"), (2, "input_required"), (2, "working"), (2, "completed")):
            assert await caller.has_no_question()
            clock.advance(pace - 0.01)
            assert await caller.has_no_question()
            clock.advance(0.01)
            await caller.reply(await expect(caller, "tasks/get"), result=theirs(status, pollInterval=2_000))
            assert (await caller.get(task_id))["status"] == "input_required"
        meta = {"io.modelcontextprotocol/related-task": {"taskId": "theirs"}}
        await caller.reply(await expect(caller, "tasks/result"), result={**answer, "_meta": meta})
        result = await waiting.result()
        assert "_meta" not in text_of(result)
        assert text_of(result) == "Hello, Ada!" if tool == "greet" else '"model": "m"' in text_of(result)
        assert "theirs" not in str(result)


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_a_task_of_the_callers_that_has_ended_at_once_is_not_polled(status: str) -> None:
    async with connected(make(FakeClock()), capabilities=WITH_TASKS) as caller:
        _, waiting, question = await begin(caller)
        await caller.reply(question, result={"task": theirs(status)})
        asked = await expect(caller, "tasks/result")
        if status == "completed":
            await caller.reply(asked, result=YES)
            assert text_of(await waiting.result()) == "Hello, Ada!"
            return
        await caller.reply(asked, error={"code": -32000, "message": f"it was {status}"})
        with pytest.raises(Refused, match=f"it was {status}") as refused:
            await waiting.result()
        assert refused.value.code == -32000


async def test_a_caller_that_could_answer_with_a_task_may_answer_at_once() -> None:
    async with connected(make(), capabilities=WITH_TASKS) as caller:
        _, waiting, question = await begin(caller)
        assert question.params["task"] == {}
        await caller.reply(question, result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert len(caller.all_requests) == 1


@pytest.mark.parametrize(
    "tasks",
    [
        None,
        {},
        {"cancel": {}, "list": {}},
        {"requests": {}},
        {"requests": {"elicitation": {}}},
        {"requests": {"sampling": {"createMessage": {}}}},
        {"requests": {"tools": {"call": {}}}},
    ],
    ids=str,
)
async def test_a_caller_that_did_not_declare_it_is_not_asked_for_a_task(tasks: dict[str, Any] | None) -> None:
    declared = {**ASKABLE} if tasks is None else {**ASKABLE, "tasks": tasks}
    async with connected(make(), capabilities=declared) as caller:
        _, waiting, question = await begin(caller)
        assert "task" not in question.params
        await caller.reply(question, result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"


async def test_roots_are_never_asked_for_as_a_task() -> None:
    async with connected(make(), capabilities=WITH_TASKS) as caller:
        _, waiting, question = await begin(caller, "roots")
        assert "task" not in question.params
        await caller.reply(question, result={"roots": []})
        await waiting.result()


@pytest.mark.parametrize(
    "task",
    [theirs() | {"taskId": 7}, theirs() | {"taskId": None}, {"status": "working"}, {}],
    ids=["number", "null", "missing", "empty"],
)
async def test_a_task_without_an_id_is_an_error_to_the_body(task: dict[str, Any]) -> None:
    async with connected(make(), capabilities=WITH_TASKS) as caller:
        _, waiting, question = await begin(caller)
        await caller.reply(question, result={"task": task})
        with pytest.raises(Refused, match="a task without a taskId") as refused:
            await waiting.result()
        assert refused.value.code == -32602


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result"])
async def test_a_caller_that_does_not_know_its_own_task_any_more_has_refused(method: str) -> None:
    clock = FakeClock()
    async with connected(make(clock), capabilities=WITH_TASKS) as caller:
        task_id, waiting, question = await begin(caller)
        await caller.reply(question, result={"task": theirs("working" if method == "tasks/get" else "completed")})
        await caller.settle()
        clock.advance(1)
        await caller.reply(await expect(caller, method), error={"code": -32602, "message": "no such task"})
        with pytest.raises(Refused, match="no such task"):
            await waiting.result()
        assert (await caller.get(task_id))["status"] == "failed"
        assert len([one for one in caller.all_requests if one.method == "elicitation/create"]) == 1


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [
        (None, 1.0),
        (0, 1.0),
        (-5_000, 1.0),
        (math.nan, 1.0),
        (-math.inf, 1.0),
        ("soon", 1.0),
        (True, 1.0),
        ([2_000], 1.0),
        (0.001, 0.05),
        (1, 0.05),
        (2_500.5, 2.5005),
        (1e300, 60.0),
        (math.inf, 60.0),
        (10**400, 60.0),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_whatever_pace_the_caller_suggests_it_is_polled_within_bounds(interval: Any, seconds: float) -> None:
    clock = FakeClock()
    async with connected(make(clock), capabilities=WITH_TASKS) as caller:
        _, waiting, question = await begin(caller)
        task = theirs() if interval is None else theirs(pollInterval=interval)
        await caller.reply(question, result={"task": task})
        assert await caller.has_no_question()
        clock.advance(seconds - 0.001)
        assert await caller.has_no_question()
        clock.advance(0.002)
        await caller.reply(await expect(caller, "tasks/get"), result=theirs("completed"))
        await caller.reply(await expect(caller, "tasks/result"), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"


async def cancel_it(caller: ElicitationCaller, task_id: str, _: PendingRequest) -> None:
    await caller.cancel(task_id)


async def cancel_wait(caller: ElicitationCaller, _: str, waiting: PendingRequest) -> None:
    await caller.cancel_request(waiting)


@pytest.mark.parametrize("end", [cancel_it, cancel_wait])
@pytest.mark.parametrize("declared", [WITH_TASKS, WITHOUT_CANCEL], ids=["may cancel", "may not"])
async def test_when_the_answer_is_no_longer_needed_a_caller_that_supports_it_gets_a_cancel_of_its_task(
    end: Callable[[ElicitationCaller, str, PendingRequest], Awaitable[None]], declared: dict[str, Any]
) -> None:
    async with connected(make(FakeClock()), capabilities=declared) as caller:
        task_id, waiting, question = await begin(caller)
        await caller.reply(question, result={"task": theirs()})
        await caller.settle()
        await end(caller, task_id, waiting)
        if declared is WITH_TASKS:
            await caller.reply(await expect(caller, "tasks/cancel"), result=theirs("cancelled"))
        assert await caller.has_no_question()
        if end is cancel_it:
            with pytest.raises(Refused, match="-32000"):
                await waiting.result()
        else:
            assert (await caller.get(task_id))["status"] == "input_required"


@pytest.mark.parametrize(
    "answer", [None, {"error": {"code": -32602, "message": "it has ended"}}], ids=["none", "error"]
)
async def test_the_outcome_of_cancelling_the_callers_task_is_not_awaited(answer: dict[str, Any] | None) -> None:
    async with connected(make(FakeClock()), capabilities=WITH_TASKS) as caller:
        task_id, waiting, question = await begin(caller)
        await caller.reply(question, result={"task": theirs()})
        await caller.settle()
        await caller.cancel(task_id)
        asked = await expect(caller, "tasks/cancel")
        with pytest.raises(Refused, match="-32000"):
            await waiting.result()
        if answer is not None:
            await caller.reply(asked, **answer)
            assert await caller.has_no_question()


async def test_a_second_caller_is_asked_only_when_the_first_disconnects() -> None:
    clock = FakeClock()
    server = make(clock)
    async with connected(server, capabilities=WITH_TASKS) as slow, connected(server) as other:
        task_id, waiting, question = await begin(slow)
        await slow.reply(question, result={"task": theirs(pollInterval=1_000)})
        waiting_too = await other.wait(task_id)
        for _ in range(3):
            assert await other.has_no_question()
            clock.advance(1)
            await slow.reply(await expect(slow, "tasks/get"), result=theirs(pollInterval=1_000))
        await slow.cancel_request(waiting)
        await slow.reply(await expect(slow, "tasks/cancel"), result=theirs("cancelled"))
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert len(other.all_requests) == 1


async def test_a_question_of_a_call_without_a_task_can_be_answered_with_a_task() -> None:
    clock = FakeClock()
    async with connected(make(clock), capabilities=WITH_TASKS) as caller:
        waiting = await caller.begin("tools/call", {"name": "greet", "arguments": {}})
        question = await caller.question()
        assert question.params["task"] == {}
        assert "_meta" not in question.params
        await caller.reply(question, result={"task": theirs(pollInterval=1_000)})
        await caller.settle()
        clock.advance(1)
        await caller.reply(await expect(caller, "tasks/get"), result=theirs("completed"))
        await caller.reply(await expect(caller, "tasks/result"), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"


async def test_over_http_all_messages_arrive_on_the_stream_of_the_waiting_request() -> None:
    clock = FakeClock()
    async with calling(make(clock), "http", capabilities=WITH_TASKS) as caller:
        _, waiting, question = await begin(caller)
        await caller.reply(question, result={"task": theirs(pollInterval=1_000)})
        await caller.settle()
        clock.advance(1)
        await caller.reply(await expect(caller, "tasks/get"), result=theirs("completed"))
        await caller.reply(await expect(caller, "tasks/result"), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert {one.stream for one in caller.all_requests} == {waiting.id}
