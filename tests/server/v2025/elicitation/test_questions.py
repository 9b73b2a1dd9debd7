"""Questions of 2025-11-25 tasks are sent to the waiting caller on its request, and name the task."""

# pyright: reportUnusedFunction=false

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from raincheck import TaskContext
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import InputKind
from raincheck.core.values import Json
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import YES, Name, add_greeting, text_of
from tests.support.server.transports import over_http, over_stdio
from tests.support.server.v2025 import killable_server
from tests.support.server.v2025.elicitation_caller import (
    GET,
    ElicitationCaller,
    HttpLink,
    connected,
    http_session,
    on_stream,
)

pytestmark = pytest.mark.anyio

ON_BOTH = pytest.mark.parametrize("way", ["memory", "http"])
OWNERS = {"memory": Owner.local(), "http": Owner.anonymous()}

SAID: dict[str, Any] = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello"}}
ROOTS: dict[str, Any] = {"roots": [{"uri": "file:///home", "name": "home"}]}
MESSAGES: Json = [{"role": "user", "content": {"type": "text", "text": "Hi"}}]


class Sure(BaseModel):
    sure: bool


@asynccontextmanager
async def calling(server: ExampleServer, way: str, **caller: Any) -> AsyncGenerator[ElicitationCaller]:
    """A caller in memory or over HTTP."""
    if way == "memory":
        async with connected(server, **caller) as one:
            yield one
    else:
        async with (
            over_http(server.mcp.streamable_http_app()) as transport,
            http_session(transport, **caller) as (one, _),
        ):
            yield one


def add_all_kinds(server: ExampleServer) -> None:
    @server.tasks.tool
    async def sample(task: TaskContext) -> Any:
        return await task.sample(MESSAGES)

    @server.tasks.tool
    async def roots(task: TaskContext) -> Any:
        return await task.ask(InputKind.ROOTS, {}, name="roots")

    @server.tasks.tool
    async def multi_input(task: TaskContext) -> str:
        user, sure = await asyncio.gather(
            task.elicit("Who are you?", Name, name="user"), task.elicit("Are you sure?", Sure, name="sure")
        )
        return f"{user.content} {sure.content}"

    @server.tasks.tool
    async def one_by_one(task: TaskContext) -> list[str]:
        return [(await task.elicit(f"Number {number}?", Sure)).action for number in range(4)]


async def until_it_asks(server: ExampleServer, task_id: str, way: str = "memory") -> None:
    await server.tasks.engine.wait(task_id, owner=OWNERS[way], until=lambda task: task.open_inputs > 0)


@ON_BOTH
async def test_a_waiting_caller_is_asked_on_its_request_with_the_task_named_and_gets_the_result(way: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with calling(server, way) as caller:
        task_id = await caller.start("greet")
        await until_it_asks(server, task_id, way)
        assert (await caller.get(task_id))["status"] == "input_required"
        # No caller is asked until one waits for the result.
        assert await caller.has_no_question()
        waiting = await caller.wait(task_id)
        question = await caller.question()
        assert question.method == "elicitation/create"
        assert question.task_id == task_id
        assert question.stream == (waiting.id if way == "http" else None)
        assert question.params["message"] == "Who are you?"
        assert question.params["requestedSchema"]["required"] == ["name"]
        await caller.reply(question, result=YES)
        result = await waiting.result()
        assert text_of(result) == "Hello, Ada!"
        assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task_id}
        assert (await caller.get(task_id))["status"] == "completed"
        assert len(caller.all_requests) == 1
    assert received == [("accept", {"name": "Ada"})]


async def test_over_stdio_the_question_arrives_between_other_answers(tmp_path: Path) -> None:
    async with (
        over_stdio(Path(killable_server.__file__), str(tmp_path / "tasks.db"), str(tmp_path / "diary")) as transport,
        on_stream(transport) as caller,
    ):
        task_id = await caller.start("ask_twice")
        waiting = await caller.wait(task_id)
        for _ in range(2):
            question = await caller.question()
            assert question.task_id == task_id
            # Neither the wait nor the open question blocks the connection.
            assert (await caller.get(task_id))["status"] == "input_required"
            assert await caller.has_no_question()
            await caller.reply(question, result={"action": "decline"})
        assert text_of(await waiting.result()) == "decline, then decline"


@ON_BOTH
@pytest.mark.parametrize(
    ("tool", "method", "answer"),
    [("sample", "sampling/createMessage", SAID), ("roots", "roots/list", ROOTS)],
)
async def test_models_and_roots_are_asked_for_likewise(
    way: str, tool: str, method: str, answer: dict[str, Any]
) -> None:
    server = ExampleServer()
    add_all_kinds(server)
    async with calling(server, way) as caller:
        task_id = await caller.start(tool)
        waiting = await caller.wait(task_id)
        question = await caller.question()
        assert (question.method, question.task_id) == (method, task_id)
        assert question.stream == (waiting.id if way == "http" else None)
        assert ("maxTokens" in question.params) == (tool == "sample")
        # Whatever belongs to the message alone does not reach the body.
        await caller.reply(question, result={**answer, "_meta": {"io.modelcontextprotocol/related-task": {}}})
        assert json.loads(text_of(await waiting.result())) == answer


@ON_BOTH
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_is_an_answer_too(way: str, action: str) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with calling(server, way) as caller:
        waiting = await caller.wait(await caller.start("greet"))
        await caller.reply(await caller.question(), result={"action": action})
        assert text_of(await waiting.result()) == f"You said {action}."


@ON_BOTH
async def test_questions_are_asked_one_after_the_other_each_once(way: str) -> None:
    server = ExampleServer()
    add_all_kinds(server)
    async with calling(server, way) as caller:
        waiting = await caller.wait(await caller.start("one_by_one"))
        for number in range(4):
            question = await caller.question()
            assert question.params["message"] == f"Number {number}?"
            await caller.reply(question, result={"action": "decline"})
        assert (await waiting.result())["structuredContent"] == {"result": ["decline"] * 4}
        assert len(caller.all_requests) == 4


@ON_BOTH
async def test_of_two_questions_at_once_both_are_asked_each_once(way: str) -> None:
    server = ExampleServer()
    add_all_kinds(server)
    answers = {"Who are you?": YES, "Are you sure?": {"action": "accept", "content": {"sure": True}}}
    async with calling(server, way) as caller:
        waiting = await caller.wait(await caller.start("multi_input"))
        for _ in answers:
            question = await caller.question()
            await caller.reply(question, result=answers[question.params["message"]])
        assert text_of(await waiting.result()) == "{'name': 'Ada'} {'sure': True}"
        assert sorted(one.params["message"] for one in caller.all_requests) == sorted(answers)


async def test_a_caller_that_reconnects_after_some_answers_is_asked_the_remaining_questions() -> None:
    server = ExampleServer()
    add_all_kinds(server)
    async with calling(server, "memory") as caller:
        task_id = await caller.start("one_by_one")
        for number in range(4):
            waiting = await caller.wait(task_id)
            question = await caller.question()
            assert question.params["message"] == f"Number {number}?"
            await caller.reply(question, result={"action": "decline"})
            if number < 3:
                # As in the specification's own example: it closes the stream and goes back to polling.
                later = await caller.question()
                await caller.cancel_request(waiting)
                assert await caller.withdrawal() == later.id
        assert (await caller.result(task_id))["structuredContent"] == {"result": ["decline"] * 4}


async def test_a_task_without_waiting_callers_keeps_its_question_open_and_holds_no_worker() -> None:
    server = ExampleServer(settings=replace(QUICK, concurrency=1))
    add_greeting(server)

    @server.tasks.tool
    async def quick() -> str:
        return "done"

    async with connected(server) as caller:
        asking = [await caller.start("greet") for _ in range(5)]
        for task_id in asking:
            await server.tasks.engine.wait(task_id, until=lambda task: task.phase is Phase.PARKED)
        # There is one place, and none of them has it.
        assert text_of(await caller.result(await caller.start("quick"))) == "done"
        for task_id in asking:
            assert (await caller.get(task_id))["status"] == "input_required"
        assert caller.all_requests == []


async def test_a_caller_without_the_capability_gets_the_bodys_own_error() -> None:
    """No other caller could be asked: the questions that a tool may ask depend on the caller of the tool."""
    server = ExampleServer()
    add_greeting(server)
    async with connected(server, capabilities={}) as caller:
        task_id = await caller.start("greet")
        result = await caller.result(task_id)
        assert result["isError"]
        assert text_of(result) == (
            "this tool needs input from its caller, which did not declare the capability elicitation"
        )
        assert (await caller.get(task_id))["status"] == "failed"
        assert caller.all_requests == []


@pytest.mark.parametrize("declared", [{"url": {}}, {"form": {}}], ids=str)
async def test_a_user_is_sent_to_a_page_only_if_its_host_declared_url_elicitation(declared: dict[str, Any]) -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def sign_in(task: TaskContext) -> Any:
        page = {"mode": "url", "message": "Sign in", "url": "https://sign.example/in", "elicitationId": "e-1"}
        return await task.ask(InputKind.ELICITATION, page, name="sign-in")

    async with connected(server, capabilities={"elicitation": declared}) as caller:
        waiting = await caller.wait(await caller.start("sign_in"))
        if "url" in declared:
            question = await caller.question()
            assert question.params["url"] == "https://sign.example/in"
            assert "requestedSchema" not in question.params
            await caller.reply(question, result={"action": "accept"})
            assert json.loads(text_of(await waiting.result())) == {"action": "accept"}
        else:
            assert "did not declare the capability elicitation.url" in text_of(await waiting.result())
            assert caller.all_requests == []


@pytest.mark.parametrize("declared", [{"tools": {}}, {}], ids=str)
async def test_a_sampling_request_has_tools_only_if_the_host_declared_support(declared: dict[str, Any]) -> None:
    server = ExampleServer()
    tool = {"name": "look", "inputSchema": {"type": "object"}}

    @server.tasks.tool
    async def sample(task: TaskContext) -> Any:
        return await task.sample(MESSAGES, tools=[tool])

    async with connected(server, capabilities={"sampling": declared}) as caller:
        waiting = await caller.wait(await caller.start("sample"))
        if declared:
            question = await caller.question()
            assert question.params["tools"] == [tool]
            await caller.reply(question, result=SAID)
            assert json.loads(text_of(await waiting.result())) == SAID
        else:
            assert "did not declare the capability sampling.tools" in text_of(await waiting.result())
            assert caller.all_requests == []


async def test_with_plain_json_answers_the_question_arrives_on_the_sessions_stream() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with (
        over_http(server.mcp.streamable_http_app(json_response=True)) as transport,
        http_session(transport) as (caller, link),
    ):
        await link.listen()
        task_id = await caller.start("greet")
        waiting = await caller.wait(task_id)
        question = await caller.question()
        assert (question.stream, question.task_id) == (GET, task_id)
        await caller.reply(question, result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"


async def test_without_sessions_no_question_can_be_asked_and_the_body_gets_an_error() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    app = server.mcp.streamable_http_app(stateless_http=True)
    async with over_http(app) as transport, http_session(transport) as (caller, link):
        assert isinstance(link, HttpLink)
        assert link.session is None
        task_id = await caller.start("greet")
        result = await caller.result(task_id)
        assert result["isError"]
        assert "this tool needs input from its caller" in text_of(result)
        assert caller.all_requests == []
    assert received == []


@ON_BOTH
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_call_without_a_task_is_asked_on_its_own_request_without_naming_a_task(way: str, version: str) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with calling(server, way, version=version, capabilities={"elicitation": {}}) as caller:
        waiting = await caller.begin("tools/call", {"name": "greet", "arguments": {}})
        question = await caller.question()
        assert question.stream == (waiting.id if way == "http" else None)
        assert "_meta" not in question.params
        await caller.reply(question, result=YES)
        result = await waiting.result()
        assert text_of(result) == "Hello, Ada!"
        assert "_meta" not in result
        assert [one for one in caller.notifications if "tasks" in one["method"]] == []


@ON_BOTH
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_call_without_a_task_whose_caller_refuses_gets_the_callers_error(way: str, version: str) -> None:
    server = ExampleServer()
    add_greeting(server)
    error = {"code": -1, "message": "I won't be asked", "data": {"why": "busy"}}
    async with calling(server, way, version=version, capabilities={"elicitation": {}}) as caller:
        waiting = await caller.begin("tools/call", {"name": "greet", "arguments": {}})
        await caller.reply(await caller.question(), error=error)
        with pytest.raises(Refused) as refused:
            await waiting.result()
        assert (refused.value.code, refused.value.message, refused.value.data) == (
            -1,
            "I won't be asked",
            error["data"],
        )
        assert len(caller.all_requests) == 1


async def test_another_owner_that_names_a_task_is_not_asked_its_question() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with over_http(server.mcp.streamable_http_app()) as transport:
        tom, tim = ({"authorization": f"Bearer {name}"} for name in ("tom", "tim"))
        async with http_session(transport, tom) as (hers, _), http_session(transport, tim) as (his, _):
            task_id = await hers.start("greet")
            with pytest.raises(Refused, match="-32602"):
                await his.result(task_id)
            assert await his.has_no_question()
            waiting = await hers.wait(task_id)
            await hers.reply(await hers.question(), result=YES)
            assert text_of(await waiting.result()) == "Hello, Ada!"
            assert his.all_requests == []
        assert (await server.tasks.engine.list_tasks(owner=Owner.local())).tasks == ()
