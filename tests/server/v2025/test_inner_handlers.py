"""Middleware between the tasks middleware and the handler of a call may replace or delay the answer."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context, copy_context
from typing import Any, cast

import pytest
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.extension import Extension
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, InitializeResult, ListToolsResult
from pydantic import BaseModel

from raincheck.core.records import Task
from tests.support.server.caller_v2025 import V2025Caller, v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated, text_of
from tests.support.server.v2025.tools import ALICE, add_echo, count_tasks, refused_call

pytestmark = pytest.mark.anyio

AnyContext = ServerRequestContext[Any, Any]
Middleware = ServerMiddleware[Any]

MODELS: dict[str, type[BaseModel]] = {
    "initialize": InitializeResult,
    "tools/list": ListToolsResult,
    "tools/call": CallToolResult,
}

WITH_A_KEY = {"raincheck/idempotency-key": "mine"}


def server_with(middleware: Middleware) -> ExampleServer:
    """Middleware that is added when tasks are attached already stands inside of them."""
    server = ExampleServer()
    server.mcp.middleware.append(middleware)
    add_echo(server)
    return server


def around_calls(change: Callable[[Mapping[str, Any]], HandlerResult]) -> Middleware:
    """Changes the answers to calls."""

    async def middleware(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        return change(cast("Mapping[str, Any]", result)) if ctx.method == "tools/call" else result

    return middleware


async def in_models(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
    """Middleware may return models as well as plain fields. It is responsible for their form."""
    result = await call_next(ctx)
    if ctx.method not in MODELS:
        return result
    later = {"result_type": None, "ttl_ms": None, "cache_scope": None}
    return MODELS[ctx.method].model_validate(result).model_copy(update=later)


async def all_tasks(server: ExampleServer) -> tuple[Task, ...]:
    """Newest first, as many as there are."""
    return tuple((await server.tasks.engine.list_tasks()).tasks)


async def status_in_the_end(server: ExampleServer, task_id: str) -> str:
    return (await server.tasks.engine.wait(task_id)).task.status


async def test_a_handshake_that_middleware_returns_as_a_model_has_the_same_content() -> None:
    async with v2025_caller(ExampleServer()) as plain, v2025_caller(server_with(in_models)) as caller:
        assert caller.welcome["capabilities"]["tasks"]["requests"] == {"tools": {"call": {}}}
        assert caller.welcome == plain.welcome


async def test_a_tool_list_that_middleware_returns_as_a_model_has_the_same_content() -> None:
    plain_shop = ExampleServer()
    add_echo(plain_shop)
    async with v2025_caller(plain_shop) as plain, v2025_caller(server_with(in_models)) as caller:
        listed = await caller.request("tools/list")
        assert listed["tools"][0]["execution"] == {"taskSupport": "optional"}
        assert listed == await plain.request("tools/list")


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_a_result_that_middleware_returns_as_a_model_is_sent_unchanged(version: str) -> None:
    async with v2025_caller(server_with(in_models), version=version) as caller:
        assert caller.welcome["protocolVersion"] == version
        assert (await caller.request("tools/list"))["tools"][0]["name"] == "say"
        assert text_of(await caller.call("say", {"words": "plain"})) == "plain"


async def test_a_task_is_returned_although_middleware_returns_a_model() -> None:
    server = server_with(in_models)
    async with v2025_caller(server) as caller:
        task = await caller.create("say", {"words": "model"})
        assert text_of(await caller.result(task["taskId"])) == "model"
        assert [one.id for one in await all_tasks(server)] == [task["taskId"]]


STAMP = {"example.org/stamp": 1}


def stamp(result: Mapping[str, Any]) -> HandlerResult:
    return {**result, "_meta": STAMP}


def stamp_a_model(result: Mapping[str, Any]) -> HandlerResult:
    return CallToolResult.model_validate({**result, "_meta": STAMP})


def strip(result: Mapping[str, Any]) -> HandlerResult:
    return {name: value for name, value in result.items() if name != "_meta"}


def restructure(result: Mapping[str, Any]) -> HandlerResult:
    return {**result, "structuredContent": {"mine": 1}}


def reword(result: Mapping[str, Any]) -> HandlerResult:
    return {**result, "content": [{"type": "text", "text": "other words"}]}


@pytest.mark.parametrize("change", [stamp, stamp_a_model, strip, restructure, reword])
async def test_a_task_is_returned_although_middleware_replaces_a_part_of_the_answer(
    change: Callable[[Mapping[str, Any]], HandlerResult],
) -> None:
    server = server_with(around_calls(change))
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        task = await caller.create("gated")
        gate.open.set()
        assert text_of(await caller.result(task["taskId"])) == "through"
        await caller.until(task["taskId"], "completed")


async def in_an_asyncio_task(call: Callable[[], Awaitable[HandlerResult]], context: Context) -> HandlerResult:
    async def run() -> HandlerResult:
        return await call()

    return await asyncio.create_task(run(), context=context)


async def in_a_thread(call: Callable[[], Awaitable[HandlerResult]], context: Context) -> HandlerResult:
    loop = asyncio.get_running_loop()

    async def run() -> HandlerResult:
        return await call()

    def wait() -> HandlerResult:
        return asyncio.run_coroutine_threadsafe(run(), loop).result()

    return await loop.run_in_executor(None, context.run, wait)


Elsewhere = Callable[[Callable[[], Awaitable[HandlerResult]], Context], Awaitable[HandlerResult]]

ELSEWHERE = pytest.mark.parametrize("elsewhere", [in_an_asyncio_task, in_a_thread])


def server_that_runs_elsewhere(elsewhere: Elsewhere, context: Callable[[], Context]) -> ExampleServer:
    """Runs calls somewhere else, in this context."""

    async def run_elsewhere(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        return await elsewhere(lambda: call_next(ctx), context())

    return server_with(run_elsewhere)


@ELSEWHERE
async def test_a_call_that_loses_its_context_on_the_way_is_refused_and_no_task_is_made(
    elsewhere: Elsewhere, caplog: pytest.LogCaptureFixture
) -> None:
    server = server_that_runs_elsewhere(elsewhere, Context)
    async with v2025_caller(server) as caller:
        refused = await refused_call(caller, "say")
        assert (refused.code, "context" in refused.message) == (-32603, False)
        assert await count_tasks(server) == 0
        # The log tells the operator the remedy.
        assert "in a copy of the context" in caplog.text
        # A call without a task does not need the context.
        assert text_of(await caller.call("say", {"words": "still"})) == "still"


@ELSEWHERE
async def test_a_call_that_is_run_elsewhere_with_its_context_has_its_task(elsewhere: Elsewhere) -> None:
    async with v2025_caller(server_that_runs_elsewhere(elsewhere, copy_context)) as caller:
        assert text_of(await caller.result(await caller.start("say", {"words": "there"}))) == "there"


async def twice(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
    """Calls once more, and takes the later answer."""
    result = await call_next(ctx)
    return await call_next(ctx) if ctx.method == "tools/call" else result


class CallTwice(Extension):
    """The same, in an extension."""

    identifier = "example.org/twice"

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,  # noqa: ARG002 - what an extension is given
        ctx: AnyContext,
        call_next: CallNext,
    ) -> HandlerResult:
        await call_next(ctx)
        return await call_next(ctx)


@pytest.fixture(params=["middleware", "extension"])
def calls_twice(request: pytest.FixtureRequest) -> ExampleServer:
    return server_with(twice) if request.param == "middleware" else ExampleServer(server={"extensions": [CallTwice()]})


async def test_when_a_call_makes_two_tasks_the_one_that_is_not_returned_is_cancelled(
    calls_twice: ExampleServer,
) -> None:
    gate = add_gated(calls_twice)
    async with v2025_caller(calls_twice) as caller:
        task_id = await caller.start("gated")
        (later, first) = await all_tasks(calls_twice)
        assert later.id == task_id
        assert await status_in_the_end(calls_twice, first.id) == "cancelled"
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"
        assert caller.pushed("notifications/tasks/status", first.id) == []


async def test_a_keyed_call_that_middleware_repeats_has_one_task_which_keeps_running(
    calls_twice: ExampleServer,
) -> None:
    gate = add_gated(calls_twice)
    async with v2025_caller(calls_twice) as caller:
        task_id = await caller.start("gated", meta=WITH_A_KEY)
        await gate.started.wait()
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"
        assert [one.id for one in await all_tasks(calls_twice)] == [task_id]
    assert not gate.stopped.is_set()


async def another_answer(_: AnyContext) -> HandlerResult:
    return {"content": [{"type": "text", "text": "another"}]}


async def no_answer(_: AnyContext) -> HandlerResult:
    raise MCPError(-32050, "closed")


OTHERWISE = pytest.mark.parametrize("answer", [another_answer, no_answer])
Answer = Callable[[AnyContext], Awaitable[HandlerResult]]


class AnswerOtherwise(Extension):
    """Answers a call in its own way, when there is a task already. As middleware, too."""

    identifier = "example.org/otherwise"

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,  # noqa: ARG002 - what an extension is given
        ctx: AnyContext,
        call_next: CallNext,
    ) -> HandlerResult:
        await call_next(ctx)
        return await self._answer(ctx)

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        return await self._answer(ctx) if ctx.method == "tools/call" else result


def server_that_answers_otherwise(kind: str, answer: Answer) -> ExampleServer:
    otherwise = AnswerOtherwise(answer)
    return server_with(otherwise) if kind == "middleware" else ExampleServer(server={"extensions": [otherwise]})


async def call_for_other_answer(caller: V2025Caller, **more: Any) -> None:
    """Ask for a task, and get something else."""
    begun = await caller.begin("tools/call", {"name": "gated", "arguments": {}, "task": {}}, **more)
    answer = await begun.received
    assert "task" not in answer.get("result", {})


@OTHERWISE
@pytest.mark.parametrize("kind", ["middleware", "extension"])
async def test_a_task_is_cancelled_when_middleware_answers_its_call_differently(kind: str, answer: Answer) -> None:
    server = server_that_answers_otherwise(kind, answer)
    add_gated(server)
    async with v2025_caller(server) as caller:
        await call_for_other_answer(caller)
        (task,) = await all_tasks(server)
        async with asyncio.timeout(20):
            assert await status_in_the_end(server, task.id) == "cancelled"


@OTHERWISE
async def test_a_keyed_task_keeps_running_for_a_caller_that_repeats_the_call(answer: Answer) -> None:
    server = server_that_answers_otherwise("middleware", answer)
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        await call_for_other_answer(caller, meta=WITH_A_KEY)
        (task,) = await all_tasks(server)
        await gate.started.wait()
        await caller.ping()
        gate.open.set()
        assert await status_in_the_end(server, task.id) == "completed"


async def test_a_task_is_cancelled_when_its_call_is_cancelled_before_the_answer_is_sent() -> None:
    lingers = asyncio.Event()

    async def linger(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            lingers.set()
            await asyncio.Event().wait()
        return result

    server = server_with(linger)
    add_gated(server)
    async with v2025_caller(server) as caller:
        begun = await caller.begin("tools/call", {"name": "gated", "arguments": {}, "task": {}})
        await lingers.wait()
        (task,) = await all_tasks(server)
        await caller.give_up(begun)
        async with asyncio.timeout(20):
            assert await status_in_the_end(server, task.id) == "cancelled"


@pytest.mark.parametrize("way", ["http", "http-json"])
async def test_over_http_nothing_is_pushed_of_a_task_before_its_caller_has_it(way: str) -> None:
    """However long something outside takes to pass the answer on. Answers may be plain JSON."""
    goes_on = asyncio.Event()

    async def linger(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if (ctx.params or {}).get("name") == "gated":
            await goes_on.wait()
        return result

    server = ExampleServer(server={"middleware": [linger]})
    add_echo(server)
    gate = add_gated(server)
    async with v2025_caller(server, way, headers=ALICE) as caller:
        call = await caller.begin("tools/call", {"name": "gated", "arguments": {}, "task": {}})
        await gate.started.wait()
        gate.open.set()
        (listed,) = (await caller.page())["tasks"]
        await caller.result(listed["taskId"])
        # Notifications arrive in order, so any for the first task would have arrived before this one.
        await caller.until(await caller.start("say"), "completed")
        assert caller.statuses(listed["taskId"]) == []
        goes_on.set()
        assert (await call.result())["task"]["taskId"] == listed["taskId"]
        await caller.until(listed["taskId"], "completed")
