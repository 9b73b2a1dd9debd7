"""An open question that is resolved in another way is withdrawn, and its wait ends."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from raincheck.testing import FakeClock
from tests.server.v2025.elicitation.test_questions import ON_BOTH, add_all_kinds, calling
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.transports import over_http
from tests.support.server.v2025.elicitation_caller import (
    ElicitationCaller,
    PendingRequest,
    ServerRequest,
    connected,
    http_session,
)

pytestmark = pytest.mark.anyio

TOM = {"authorization": "Bearer tom"}


@asynccontextmanager
async def both_generations(server: ExampleServer) -> AsyncGenerator[tuple[ElicitationCaller, Caller]]:
    """Two callers of one owner, each of its generation."""
    async with over_http(server.mcp.streamable_http_app()) as transport, http_session(transport, TOM) as (old, _):
        yield old, Caller(transport, headers=TOM)


async def begin(
    caller: ElicitationCaller, tool: str = "greet", task_id: str | None = None
) -> tuple[str, PendingRequest, ServerRequest]:
    """A task with an open question, a caller that waits for it, and the question."""
    task_id = await caller.start(tool) if task_id is None else task_id
    waiting = await caller.wait(task_id)
    return task_id, waiting, await caller.question()


async def test_an_answer_by_a_caller_of_2026_is_the_answer_and_the_question_is_withdrawn() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with both_generations(server) as (old, new):
        task_id, waiting, question = await begin(old)
        await new.update(task_id, {"elicit-0": YES})
        assert await old.withdrawal() == question.id
        assert text_of(await waiting.result()) == "Hello, Ada!"
        # An answer from now on has no recipient.
        await old.reply(question, result={"action": "decline"})
        assert text_of(await old.result(task_id)) == "Hello, Ada!"
        assert (await old.get(task_id))["status"] == "completed"
    assert received == [("accept", {"name": "Ada"})]


async def test_an_answered_question_is_withdrawn_from_the_other_caller_and_the_rest_is_asked() -> None:
    server = ExampleServer()
    add_all_kinds(server)
    async with both_generations(server) as (old, new):
        task_id, waiting, question = await begin(old, "multi_input")
        key = {"Who are you?": "user-0", "Are you sure?": "sure-0"}[question.params["message"]]
        await new.update(task_id, {key: {"action": "decline"}})
        assert await old.withdrawal() == question.id
        rest = await old.question()
        assert rest.params["message"] != question.params["message"]
        await old.reply(rest, result={"action": "decline"})
        assert text_of(await waiting.result()) == "None None"
        assert len(old.all_requests) == 2


async def test_an_answer_of_a_2025_caller_is_not_visible_to_a_2026_caller() -> None:
    server = ExampleServer()
    add_all_kinds(server)
    async with both_generations(server) as (old, new):
        task_id = await new.start("one_by_one")
        waiting = await old.wait(task_id)
        for number in range(4):
            question = await old.question()
            seen = await new.get(task_id)
            assert seen["status"] == "input_required"
            assert list(seen["inputRequests"]) == [f"elicit-{number}"]
            await old.reply(question, result={"action": "decline"})
        await waiting.result()
        assert (await new.get(task_id))["status"] == "completed"


@ON_BOTH
async def test_cancelling_a_task_withdraws_its_question_and_answers_the_waiting_callers(way: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with calling(server, way) as caller:
        task_id, waiting, question = await begin(caller)
        assert (await caller.cancel(task_id))["status"] == "cancelled"
        assert await caller.withdrawal() == question.id
        with pytest.raises(Refused) as refused:
            await waiting.result()
        assert refused.value.code == -32000
        assert refused.value.data["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task_id}
        await caller.reply(question, result=YES)
        await caller.settle()
        assert (await caller.get(task_id))["status"] == "cancelled"
    assert received == []


@ON_BOTH
async def test_a_timeout_withdraws_the_question_of_the_task_and_answers_the_waiting_callers(way: str) -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    add_greeting(server, timeout=60.0)
    async with calling(server, way) as caller:
        task_id, waiting, question = await begin(caller)
        clock.advance(61)
        assert await caller.withdrawal() == question.id
        result = await waiting.result()
        assert result["isError"]
        assert (await caller.get(task_id))["status"] == "failed"


async def test_with_two_servers_on_one_file_an_answer_to_one_withdraws_the_question_of_the_other(
    tmp_path: Path,
) -> None:
    """The servers share only the file: a question that was answered elsewhere is withdrawn at once."""
    async with AsyncExitStack() as stack:
        callers: list[ElicitationCaller] = []
        for _ in range(2):
            server = ExampleServer(tmp_path / "tasks.db")
            add_greeting(server)
            callers.append(await stack.enter_async_context(connected(server)))
        here, there = callers
        task_id, waiting, question = await begin(here)
        _, waiting_too, question_too = await begin(there, task_id=task_id)
        await there.reply(question_too, result=YES)
        assert await here.withdrawal() == question.id
        assert text_of(await waiting.result()) == text_of(await waiting_too.result()) == "Hello, Ada!"
        await here.reply(question, result={"action": "decline"})
        assert text_of(await here.result(task_id)) == "Hello, Ada!"
        assert [len(one.all_requests) for one in callers] == [1, 1]
