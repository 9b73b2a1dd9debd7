"""A caller that answers a question with an error: the body gets the error, and fails with it unless it catches it."""

# pyright: reportUnusedFunction=false

import asyncio
import math
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from raincheck import SyncTaskContext, TaskContext, ToolError
from raincheck.core.records import InputKind
from raincheck.errors import ProtocolError
from tests.server.v2025.elicitation.test_questions import MESSAGES, calling
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, Name, add_greeting, text_of
from tests.support.server.transports import over_stdio
from tests.support.server.v2025 import isolated_tools, killable_server
from tests.support.server.v2025.elicitation_caller import connected, on_stream

pytestmark = pytest.mark.anyio

BUSY: dict[str, Any] = {"code": -1, "message": "user rejected it", "data": {"why": ["busy", None, 1.5]}}
UNKNOWN: dict[str, Any] = {"code": -32601, "message": "no such method"}
ODD: dict[str, Any] = {"code": 0, "message": "nothing", "data": "d"}


def describe_error(error: ProtocolError | MCPError | Refused) -> dict[str, Any]:
    """The error, independent of its name on the transport."""
    if isinstance(error, MCPError):
        code, message, data = error.error.code, error.error.message, error.error.data
    else:
        code, message, data = error.code, error.message if isinstance(error, Refused) else str(error), error.data
    return {"code": code, "message": message} | ({} if data is None else {"data": data})


async def ask_for_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


def make() -> tuple[ExampleServer, list[dict[str, Any]]]:
    """Add tools that ask in every possible way and continue. Returns the answers that they received."""
    server = ExampleServer()
    received: list[dict[str, Any]] = []

    @server.tasks.tool
    async def in_the_loop(task: TaskContext) -> str:
        try:
            await task.elicit("Who are you?", Name)
        except ProtocolError as error:
            received.append(describe_error(error))
        return "went on"

    @server.tasks.tool
    def in_a_thread(task: SyncTaskContext) -> str:
        try:
            task.elicit("Who are you?", Name)
        except ProtocolError as error:
            received.append(describe_error(error))
        return "went on"

    @server.tasks.tool
    async def of_a_model(task: TaskContext) -> str:
        try:
            await task.sample(MESSAGES)
        except ProtocolError as error:
            received.append(describe_error(error))
        return "went on"

    @server.tasks.tool
    async def with_a_context(ctx: Context[Any, Any]) -> str:
        try:
            await ctx.elicit("Who are you?", Name)
        except MCPError as error:
            received.append(describe_error(error))
        return "went on"

    @server.mcp.tool()
    async def with_a_session(ctx: Context[Any, Any]) -> str:
        params = ElicitRequestFormParams(message="Who are you?", requested_schema={"type": "object", "properties": {}})
        try:
            await ctx.session.send_request(ElicitRequest(params=params), ElicitResult)
        except MCPError as error:
            received.append(describe_error(error))
        return "went on"

    server.tasks.enable("with_a_session")
    return server, received


def make_strict() -> ExampleServer:
    """Tools that ask, and catch nothing."""
    server = ExampleServer()
    add_greeting(server)

    @server.tasks.tool
    async def with_a_context(ctx: Context[Any, Any]) -> str:
        return (await ctx.elicit("Who are you?", Name)).action

    @server.tasks.tool
    async def with_a_resolver(name: Annotated[Name, Resolve(ask_for_name)]) -> str:
        return f"Hello, {name.name}!"

    @server.tasks.tool
    async def sample(task: TaskContext) -> str:
        return str(await task.sample(MESSAGES))

    @server.tasks.tool
    async def roots(task: TaskContext) -> str:
        return str(await task.ask(InputKind.ROOTS, {}, name="roots"))

    return server


@pytest.mark.parametrize(
    ("tool", "error"),
    [
        ("in_the_loop", BUSY),
        ("in_the_loop", UNKNOWN),
        ("in_the_loop", ODD),
        ("in_a_thread", BUSY),
        ("of_a_model", BUSY),
        ("with_a_context", BUSY),
        ("with_a_context", UNKNOWN),
        ("with_a_session", BUSY),
    ],
    ids=lambda value: str(value)[:25],
)
async def test_the_body_gets_the_callers_error_and_may_continue(tool: str, error: dict[str, Any]) -> None:
    server, received = make()
    async with connected(server) as caller:
        task_id = await caller.start(tool)
        waiting = await caller.wait(task_id)
        await caller.reply(await caller.question(), error=error)
        assert text_of(await waiting.result()) == "went on"
        assert (await caller.get(task_id))["status"] == "completed"
        assert len(caller.all_requests) == 1
    # In a second attempt, it received the same answer again.
    assert received
    assert all(one == error for one in received)


@pytest.mark.parametrize(
    ("tool", "way", "error"),
    [
        ("greet", "memory", BUSY),
        ("greet", "http", UNKNOWN),
        ("greet", "memory", ODD),
        ("with_a_context", "http", BUSY),
        ("with_a_resolver", "memory", BUSY),
    ],
    ids=lambda value: str(value)[:25],
)
async def test_a_task_whose_body_does_not_catch_the_callers_error_fails_with_it(
    tool: str, way: str, error: dict[str, Any]
) -> None:
    async with calling(make_strict(), way) as caller:
        task_id = await caller.start(tool)
        waiting = await caller.wait(task_id)
        await caller.reply(await caller.question(), error=error)
        for again in (waiting, await caller.wait(task_id)):
            with pytest.raises(Refused) as refused:
                await again.result()
            assert describe_error(refused.value) == error
        task = await caller.get(task_id)
        assert (task["status"], task["statusMessage"]) == ("failed", error["message"])
        assert len(caller.all_requests) == 1


@pytest.mark.parametrize(
    ("tool", "answer"),
    [
        ("greet", {}),
        ("greet", {"action": "perhaps"}),
        ("greet", {"action": "accept"}),
        ("greet", {"action": "accept", "content": {}}),
        ("greet", {"action": "accept", "content": {"name": 7}}),
        ("greet", {"action": "accept", "content": ["Ada"]}),
        ("greet", {"action": "accept", "content": {"name": "Ada", "more": math.nan}}),
        ("greet", {"action": "accept", "content": {"name": "A" * 300_000}}),
        ("greet", {"task": {"taskId": "mine", "status": "working"}}),
        ("with_a_context", {"action": "accept", "content": {"name": 7}}),
        ("with_a_resolver", {"action": "accept", "content": {"name": 7}}),
        ("sample", {}),
        ("sample", {"role": "assistant", "content": "text"}),
        ("sample", {"role": "system", "model": "m", "content": {"type": "text", "text": ""}}),
        ("roots", {}),
        ("roots", {"roots": "file:///"}),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_an_answer_of_a_wrong_shape_is_an_error_to_the_body_and_not_asked_for_again(
    tool: str, answer: dict[str, Any]
) -> None:
    async with connected(make_strict()) as caller:
        task_id = await caller.start(tool)
        waiting = await caller.wait(task_id)
        await caller.reply(await caller.question(), result=answer)
        with pytest.raises(Refused) as refused:
            await waiting.result()
        assert refused.value.code == -32602
        assert len(refused.value.message) < 1_000
        assert (await caller.get(task_id))["status"] == "failed"
        assert await caller.has_no_question()
        assert len(caller.all_requests) == 1


@pytest.mark.parametrize(
    "error",
    [{"code": -1, "message": "m" * 300_000}, {"code": -1, "message": "m", "data": "d" * 300_000}],
    ids=["message", "data"],
)
async def test_an_error_that_is_too_large_to_store_is_reported_as_such(error: dict[str, Any]) -> None:
    async with connected(make_strict()) as caller:
        task_id = await caller.start("greet")
        waiting = await caller.wait(task_id)
        await caller.reply(await caller.question(), error=error)
        with pytest.raises(Refused, match="262,144 are allowed") as refused:
            await waiting.result()
        assert refused.value.code == -32602


async def test_after_a_refusal_the_body_may_ask_again_and_something_else() -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def insist(task: TaskContext) -> str:
        for _ in range(3):
            try:
                return (await task.elicit("Who are you?", Name)).action
            except ProtocolError:
                await task.status("asking again")
        raise ToolError("nobody there")

    async with connected(server) as caller:
        waiting = await caller.wait(await caller.start("insist"))
        await caller.reply(await caller.question(), error=BUSY)
        await caller.reply(await caller.question(), error=UNKNOWN)
        await caller.reply(await caller.question(), result=YES)
        assert text_of(await waiting.result()) == "accept"
        assert len(caller.all_requests) == 3


async def test_one_of_two_concurrent_questions_can_be_refused() -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def ask_both(task: TaskContext) -> list[str]:
        ends = await asyncio.gather(
            task.elicit("One?", Name, name="one"), task.elicit("Two?", Name, name="two"), return_exceptions=True
        )
        return [str(end) if isinstance(end, BaseException) else end.action for end in ends]

    async with connected(server) as caller:
        waiting = await caller.wait(await caller.start("ask_both"))
        for _ in range(2):
            question = await caller.question()
            answer = {"error": BUSY} if question.params["message"] == "One?" else {"result": YES}
            await caller.reply(question, **answer)
        assert (await waiting.result())["structuredContent"] == {"result": ["user rejected it", "accept"]}


async def test_a_body_in_a_process_of_its_own_gets_the_error_too() -> None:
    async with connected(isolated_tools.mcp) as caller:
        waiting = await caller.wait(await caller.start("catches"))
        await caller.reply(await caller.question(), error=BUSY)
        assert text_of(await waiting.result()) == f"ProtocolError -1 user rejected it {BUSY['data']}"
        assert len(caller.all_requests) == 1


async def test_a_body_in_a_process_of_its_own_that_lets_it_pass_has_failed_with_that_very_error() -> None:
    async with connected(isolated_tools.mcp) as caller:
        waiting = await caller.wait(await caller.start("lets_it_pass"))
        await caller.reply(await caller.question(), error=BUSY)
        with pytest.raises(Refused) as refused:
            await waiting.result()
        assert describe_error(refused.value) == BUSY


async def test_a_refusal_outlives_the_engine_that_took_it(tmp_path: Path) -> None:
    """Another server runs the body again, which gets the same error without a new question."""
    received: list[tuple[int, int]] = []
    task_ids: list[str] = []
    for _ in range(2):
        server = ExampleServer(tmp_path / "tasks.db")

        @server.tasks.tool
        async def ask_twice(task: TaskContext) -> str:
            try:
                await task.elicit("One?", Name)
            except ProtocolError as error:
                received.append((task.attempt, error.code))
            return (await task.elicit("Two?", Name)).action

        async with connected(server) as caller:
            if not task_ids:
                task_ids.append(await caller.start("ask_twice"))
                await caller.wait(task_ids[0])
                await caller.reply(await caller.question(), error=BUSY)
                assert (await caller.question()).params["message"] == "Two?"
                continue
            waiting = await caller.wait(task_ids[0])
            question = await caller.question()
            assert question.params["message"] == "Two?"
            await caller.reply(question, result=YES)
            assert text_of(await waiting.result()) == "accept"
            assert len(caller.all_requests) == 1
    assert len({attempt for attempt, _ in received}) > 1
    assert {code for _, code in received} == {-1}


async def test_a_refusal_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    arguments = (Path(killable_server.__file__), str(tmp_path / "tasks.db"), str(diary))
    async with over_stdio(*arguments) as transport:
        async with on_stream(transport) as caller:
            task_id = await caller.start("ask_twice")
            await caller.wait(task_id)
            await caller.reply(await caller.question(), error=BUSY)
            assert (await caller.question()).params["message"] == "Really?"
        transport.process.kill()
        await transport.process.wait()
    async with over_stdio(*arguments) as transport, on_stream(transport) as caller:
        waiting = await caller.wait(task_id)
        question = await caller.question()
        assert question.params["message"] == "Really?"
        await caller.reply(question, result={"action": "decline"})
        first = f"refused with -1 user rejected it {BUSY['data']}"
        assert text_of(await waiting.result()) == f"{first}, then decline"
        assert len(caller.all_requests) == 1
    lines = diary.read_text().splitlines()
    assert len(lines) > 1
    assert {line.partition(" ")[2] for line in lines} == {first}
