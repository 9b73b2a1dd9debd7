"""Calls in several rounds: questions before there is a task, and questions of a hidden task."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from mcp.server.context import ServerRequestContext
from mcp.server.elicitation import ElicitationResult
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Elicit, Resolve
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from raincheck import Owner, TaskContext, Tasks
from raincheck.core.lifecycle import Phase
from tests.support.server.caller_v2026 import ASKABLE, TASKS, Caller, Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import (
    NO_TASKS,
    ON_BOTH_TRANSPORTS,
    YES,
    Name,
    add_gated,
    add_greeting,
    other_owner,
    refusal,
    text_of,
    without_tasks,
)
from tests.support.server.transports import Message, in_memory

pytestmark = pytest.mark.anyio


async def ask_for_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


def add_booking(example_server: ExampleServer, **settings: Any) -> list[str]:
    """Add a tool that requires a name first. Return the list in which it records its task ids."""
    begun: list[str] = []

    @example_server.tasks.tool(**settings)
    async def book(day: str, name: Annotated[Name, Resolve(ask_for_name)], task: TaskContext) -> str:
        begun.append(task.id)
        await task.sleep(0.2)  # long enough to park: the name is still known when it resumes
        return f"{name.name} on {day}"

    return begun


async def next_round(caller: Caller, tool: str, asked: Message, answer: Any = YES, **arguments: Any) -> Message:
    """Call again, with the same answer to all that was asked."""
    answers = dict.fromkeys(asked["inputRequests"], answer)
    return await caller.call(tool, arguments, inputResponses=answers, requestState=asked["requestState"])


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("input-before-task", "create-no-request-state")
async def test_required_input_of_a_tool_is_requested_before_there_is_a_task(way: str) -> None:
    example_server = ExampleServer()
    begun = add_booking(example_server)
    async with example_server.open_by(way) as caller:
        asked = await caller.call("book", {"day": "Monday"})
        assert asked["resultType"] == "input_required"
        (request,) = asked["inputRequests"].values()
        assert request["params"]["message"] == "Who are you?"
        created = await next_round(caller, "book", asked, day="Monday")
        assert created["resultType"] == "task"
        assert "requestState" not in created
        async with caller.listening(created["taskId"]) as pushed:
            # It never asks again.
            assert {task["status"] async for task in pushed} == {"working", "completed"}
        assert text_of(await caller.result(created["taskId"])) == "Ada on Monday"
        assert set(begun) == {created["taskId"]}


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("input-before-task")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_caller_that_declines_required_input_gets_an_error_result_and_no_task(action: str, way: str) -> None:
    example_server = ExampleServer()
    begun = add_booking(example_server)
    async with example_server.open_by(way) as caller:
        asked = await caller.call("book", {"day": "Monday"})
        result = await next_round(caller, "book", asked, {"action": action}, day="Monday")
        assert result["resultType"] == "complete"
        assert result["isError"] is True
        assert "book" in text_of(result)
        if way == "open":
            assert (await example_server.tasks.engine.list_tasks()).tasks == ()
        assert begun == []


async def test_a_tool_that_accepts_a_refusal_gets_it() -> None:
    example_server = ExampleServer()

    @example_server.tasks.tool()
    async def book(answer: Annotated[ElicitationResult[Name], Resolve(ask_for_name)]) -> str:
        return f"they said {answer.action}"

    async with example_server.open() as caller:
        asked = await caller.call("book")
        created = await next_round(caller, "book", asked, {"action": "decline"})
        assert text_of(await caller.result(created["taskId"])) == "they said decline"


async def test_required_input_of_a_caller_that_can_not_be_asked_makes_no_task() -> None:
    example_server = ExampleServer()
    begun = add_booking(example_server)
    async with example_server.open(capabilities=TASKS) as caller:
        refused = await refusal(caller, "tools/call", {"name": "book", "arguments": {"day": "Monday"}})
        assert refused.code == -32021
        assert "elicitation" in refused.data["requiredCapabilities"]
        assert (await example_server.tasks.engine.list_tasks()).tasks == ()
        assert begun == []


async def test_a_tool_that_requires_tasks_asks_nothing_of_a_caller_without_them() -> None:
    example_server = ExampleServer()
    add_booking(example_server, mode="required")
    async with example_server.open(capabilities=NO_TASKS) as caller:
        refused = await refusal(caller, "tools/call", {"name": "book", "arguments": {"day": "Monday"}})
        assert (refused.code, refused.data) == (-32021, {"requiredCapabilities": TASKS})


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("create-needs-declaration")
async def test_a_caller_without_tasks_is_asked_in_rounds_what_the_task_asks(way: str) -> None:
    example_server = ExampleServer()
    received = add_greeting(example_server)
    async with example_server.open_by(way, capabilities=NO_TASKS) as caller:
        asked = await caller.call("greet")
        assert asked["resultType"] == "input_required"
        assert asked["inputRequests"]["elicit-0"]["params"]["message"] == "Who are you?"
        assert text_of(await next_round(caller, "greet", asked)) == "Hello, Ada!"
        assert received == [("accept", {"name": "Ada"})]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refusal_in_a_round_reaches_the_body(action: str) -> None:
    example_server = ExampleServer()
    add_greeting(example_server)
    async with example_server.open(capabilities=NO_TASKS) as caller:
        asked = await caller.call("greet")
        assert text_of(await next_round(caller, "greet", asked, {"action": action})) == f"You said {action}."


async def test_rounds_before_the_task_and_during_it_follow_each_other() -> None:
    example_server = ExampleServer()

    @example_server.tasks.tool()
    async def book(name: Annotated[Name, Resolve(ask_for_name)], task: TaskContext) -> str:
        first = await task.elicit("Which day?", Name)
        second = await task.elicit("Which hour?", Name)
        return f"{name.name}, {first.content}, {second.content}"

    messages: list[str] = []
    async with example_server.open(capabilities=NO_TASKS) as caller:
        answer = await caller.call("book")
        while answer["resultType"] == "input_required":
            (request,) = answer["inputRequests"].values()
            messages.append(request["params"]["message"])
            reply = {"action": "accept", "content": {"name": messages[-1]}}
            answer = await next_round(caller, "book", answer, reply)
        assert messages == ["Who are you?", "Which day?", "Which hour?"]
        assert text_of(answer) == "Who are you?, {'name': 'Which day?'}, {'name': 'Which hour?'}"
        # One task, however many rounds.
        assert len((await example_server.tasks.engine.list_tasks()).tasks) == 1


async def test_a_round_may_bring_some_answers_and_gets_the_remaining_questions() -> None:
    example_server = ExampleServer()

    @example_server.tasks.tool()
    async def interview(task: TaskContext) -> list[Any]:
        replies = await asyncio.gather(*(task.elicit(f"{one}?", Name, name=one) for one in ("first", "second")))
        return [reply.content for reply in replies]

    async with example_server.open(capabilities=NO_TASKS) as caller:
        asked = await caller.call("interview")
        while set(asked["inputRequests"]) != {"first-0", "second-0"}:
            # On a busy machine not both come in one round: continue without an answer.
            asked = await caller.call("interview", requestState=asked["requestState"])
        state = asked["requestState"]
        rest = await caller.call("interview", inputResponses={"second-0": YES, "x": YES}, requestState=state)
        assert list(rest["inputRequests"]) == ["first-0"]
        nothing = await caller.call("interview", requestState=rest["requestState"])
        assert list(nothing["inputRequests"]) == ["first-0"]
        result = await next_round(caller, "interview", nothing)
        assert result["structuredContent"] == {"result": [{"name": "Ada"}, {"name": "Ada"}]}


async def test_a_wrong_answer_in_a_round_is_refused_and_may_be_given_again() -> None:
    example_server = ExampleServer()
    received = add_greeting(example_server)
    async with example_server.open(capabilities=NO_TASKS) as caller:
        asked = await caller.call("greet")
        wrong = {"inputResponses": {"elicit-0": {"action": "accept", "content": {"name": 7}}}}
        params = {"name": "greet", "arguments": {}, **wrong, "requestState": asked["requestState"]}
        refused = await refusal(caller, "tools/call", params)
        assert refused.code == -32602
        assert "elicit-0" in refused.message
        assert received == []
        assert text_of(await next_round(caller, "greet", asked)) == "Hello, Ada!"


async def test_a_round_that_is_repeated_gets_the_same_result() -> None:
    example_server = ExampleServer()
    received = add_greeting(example_server)
    async with example_server.open(capabilities=NO_TASKS) as caller:
        asked = await caller.call("greet")
        for _ in range(2):
            assert text_of(await next_round(caller, "greet", asked)) == "Hello, Ada!"
        assert len(received) == 1


async def test_a_round_of_a_call_whose_task_was_cancelled_gets_that_error() -> None:
    example_server = ExampleServer()
    received = add_greeting(example_server)
    async with example_server.open(capabilities=NO_TASKS) as caller:
        asked = await caller.call("greet")
        (task,) = (await example_server.tasks.engine.list_tasks()).tasks
        await example_server.tasks.engine.cancel(task.id, reason="closing time")
        with pytest.raises(Refused, match="-32000: closing time"):
            await next_round(caller, "greet", asked)
        assert received == []


async def test_a_tool_that_forbids_tasks_asks_every_caller_in_rounds() -> None:
    example_server = ExampleServer()
    add_greeting(example_server, mode="forbidden")
    async with example_server.open() as caller:
        asked = await caller.call("greet")
        assert asked["resultType"] == "input_required"
        assert text_of(await next_round(caller, "greet", asked)) == "Hello, Ada!"


async def test_the_hidden_task_of_a_caller_that_disconnects_in_a_later_round_is_cancelled() -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)

    @example_server.tasks.tool(mode="forbidden")
    async def greet(task: TaskContext) -> None:
        await task.elicit("Who are you?", Name)
        await gate.pass_through(task)

    async with example_server.open() as caller:
        asked = await caller.call("greet")
        call = asyncio.create_task(next_round(caller, "greet", asked))
        await gate.started.wait()
        call.cancel()
        await gate.stopped.wait()
        assert (await example_server.tasks.engine.wait(gate.task_ids[0])).task.phase is Phase.CANCELLED


@pytest.mark.parametrize(
    ("capabilities", "fallback_wait"), [(TASKS, 45), ({}, None), ({**TASKS, "sampling": {}}, 45)], ids=str
)
async def test_a_task_whose_caller_can_not_be_asked_ends_in_an_error_for_it_to_read(
    capabilities: dict[str, Any], fallback_wait: float | None
) -> None:
    # A caller without tasks can't be asked by text where it never gets its task id.
    example_server = ExampleServer(fallback_wait=fallback_wait)
    add_greeting(example_server)
    async with example_server.open(capabilities=capabilities) as caller:
        answer = await caller.call("greet")
        result = await caller.result(answer["taskId"]) if answer["resultType"] == "task" else answer
        assert result["isError"] is True
        assert "did not declare the capability elicitation" in text_of(result)


async def test_a_caller_that_waits_for_a_hidden_task_gets_its_progress() -> None:
    example_server = ExampleServer()
    gate = asyncio.Event()

    @example_server.tasks.tool()
    async def slow(task: TaskContext) -> str:
        await task.progress(1, 2, "half")
        await gate.wait()
        return "done"

    async with example_server.open(capabilities={}) as caller:
        message = caller.message("tools/call", {"name": "slow", "arguments": {}}, {"progressToken": "mine"})
        came = caller.transport.exchange(message, {})
        first = await anext(came)
        assert first["method"] == "notifications/progress"
        assert first["params"] == {"progressToken": "mine", "progress": 1, "total": 2, "message": "half"}
        gate.set()
        assert text_of((await anext(came))["result"]) == "done"
        await came.aclose()


@pytest.mark.requirement("access-checked-each-time")
async def test_the_request_state_of_another_owners_call_is_refused_like_an_unknown_one() -> None:
    example_server = ExampleServer()
    received = add_greeting(example_server)
    async with example_server.open_http(headers={"authorization": "Bearer of mine"}, capabilities=NO_TASKS) as caller:
        asked = await caller.call("greet")
        thief = without_tasks(other_owner(caller))
        params = {"name": "greet", "arguments": {}, "inputResponses": {"elicit-0": YES}}
        refused = await refusal(thief, "tools/call", {**params, "requestState": asked["requestState"]})
        assert refused.code == -32602
        assert received == []
        assert text_of(await next_round(caller, "greet", asked)) == "Hello, Ada!"


@asynccontextmanager
async def bare_server() -> AsyncGenerator[tuple[Caller, list[str]]]:
    """A low-level server, which passes on states as callers write them; `who` in the metadata is the owner."""
    ran: list[str] = []

    async def call(ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        await ctx.session.elicit_form("Who are you?", {"type": "object", "properties": {}})  # type: ignore[arg-type]
        ran.append(params.name)
        return CallToolResult(content=[])

    async def list_tools(_: ServerRequestContext[Any, Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[])

    server: Server[Any] = Server("bare", on_call_tool=call, on_list_tools=list_tools)
    tasks = Tasks(server, "memory:", settings=QUICK, owner=lambda ctx: Owner.token("", (ctx.meta or {})["who"]))
    tasks.enable("one")
    tasks.enable("two")
    async with in_memory(server) as transport:
        yield Caller(transport, capabilities=ASKABLE), ran


@pytest.mark.requirement("access-checked-each-time")
async def test_an_invented_request_state_is_refused_without_effect() -> None:
    async with bare_server() as (caller, ran):
        mine, other = {"who": "me"}, {"who": "them"}
        asked = await caller.call("one", meta=mine)
        task_id = asked["requestState"].removeprefix("raincheck:")
        answers: dict[str, Any] = {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]}
        params: dict[str, Any] = {"name": "one", "arguments": {}, "inputResponses": answers}
        errors: set[tuple[int, str]] = set()
        for made_up in (task_id, "nothing", "", f"{task_id}0"):
            state = f"raincheck:{made_up}"
            refused = await refusal(caller, "tools/call", {**params, "requestState": state}, meta=other)
            errors.add((refused.code, refused.message.replace(repr(made_up), "…")))
        assert {code for code, _ in errors} == {-32602}
        assert len(errors) == 1
        other_tool = {**params, "name": "two", "requestState": asked["requestState"]}
        refused = await refusal(caller, "tools/call", other_tool, meta=mine)
        assert refused.code == -32602
        assert "another tool" in refused.message
        assert ran == []
        await caller.call("one", inputResponses=answers, requestState=asked["requestState"], meta=mine)
        assert ran == ["one"]


async def test_a_request_state_that_the_sdk_did_not_seal_is_refused() -> None:
    example_server = ExampleServer()
    received = add_greeting(example_server)
    async with example_server.open() as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        for state in (f"raincheck:{task_id}", "raincheck:", "nonsense"):
            params = {"name": "greet", "arguments": {}, "inputResponses": {"elicit-0": YES}, "requestState": state}
            assert (await refusal(caller, "tools/call", params)).code == -32602
        assert received == []
