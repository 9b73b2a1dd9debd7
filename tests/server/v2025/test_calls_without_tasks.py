"""Callers before 2026 without tasks wait on their connection, are asked there, and stop the work by disconnecting."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, TextContent

from raincheck import TaskContext, Tasks
from raincheck.core.lifecycle import Phase
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import YES, Gate, Name, add_gated, add_greeting, text_of
from tests.support.server.transports import MemoryTransport, Message, in_memory

pytestmark = pytest.mark.anyio


class LegacyWire:
    """A connection of 2025 that puts all received messages into one queue."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self.received: asyncio.Queue[Message] = asyncio.Queue()
        setattr(transport, "receive", self.received.put_nowait)  # noqa: B010 - in the place of a method

    async def greet(self) -> None:
        hello: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "old", "version": "1"},
        }
        await self.transport.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        assert (await self.received.get())["id"] == 0
        await self.transport.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, request_id: int = 1, **params: Any) -> None:
        params = {"name": tool, "arguments": {}, **params}
        await self.transport.send({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})

    async def asked(self) -> Message:
        question = await self.received.get()
        assert question["method"] == "elicitation/create", question
        return question

    async def reply(self, question: Message, **response: Any) -> None:
        await self.transport.send({"jsonrpc": "2.0", "id": question["id"], **response})

    async def cancel(self, request_id: int = 1) -> None:
        params = {"requestId": request_id}
        await self.transport.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


@asynccontextmanager
async def connected(example_server: ExampleServer) -> AsyncGenerator[LegacyWire]:
    async with in_memory(example_server.mcp) as transport:
        legacy = LegacyWire(transport)
        await legacy.greet()
        yield legacy


async def wait_for_only_task(example_server: ExampleServer) -> tuple[Phase, str | None]:
    (task,) = (await example_server.tasks.engine.list_tasks()).tasks
    ended = (await example_server.tasks.engine.wait(task.id)).task
    return ended.phase, ended.status_message


async def test_a_legacy_caller_is_asked_and_gets_its_result() -> None:
    example_server = ExampleServer()
    add_greeting(example_server)
    async with connected(example_server) as legacy:
        await legacy.call("greet")
        await legacy.reply(await legacy.asked(), result=YES)
        assert text_of((await legacy.received.get())["result"]) == "Hello, Ada!"


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -1, "message": "I won't be asked"}},
        {"result": {"action": "accept", "content": {"name": 7}}},
        {"result": {"action": "accept", "content": {}}},
        {"result": {"action": "perhaps"}},
        {"result": {}},
    ],
    ids=["refused", "of a wrong type", "incomplete", "of an unknown kind", "empty"],
)
async def test_a_legacy_caller_that_answers_with_something_else_gets_an_error_and_its_task_has_failed_with_it(
    answer: dict[str, Any],
) -> None:
    example_server = ExampleServer()
    answers = add_greeting(example_server)
    async with connected(example_server) as legacy:
        await legacy.call("greet")
        await legacy.reply(await legacy.asked(), **answer)
        answered = await legacy.received.get()
        assert answered["id"] == 1
        expected = answer.get("error", {"code": -32602})
        assert answered["error"]["code"] == expected["code"]
        assert answered["error"]["message"] == expected.get("message", answered["error"]["message"])
        assert await wait_for_only_task(example_server) == (Phase.FAILED, answered["error"]["message"])
    assert answers == []


async def test_a_legacy_caller_that_takes_its_call_back_stops_the_work() -> None:
    example_server = ExampleServer()
    gate: Gate = add_gated(example_server)
    async with connected(example_server) as legacy:
        await legacy.call("gated")
        await gate.started.wait()
        await legacy.cancel()
        await gate.stopped.wait()
        assert await wait_for_only_task(example_server) == (Phase.CANCELLED, "its caller disconnected")


async def test_a_legacy_caller_that_takes_its_call_back_while_it_is_asked_stops_the_work() -> None:
    example_server = ExampleServer()
    answers = add_greeting(example_server)
    async with connected(example_server) as legacy:
        await legacy.call("greet")
        await legacy.asked()
        await legacy.cancel()
        assert await wait_for_only_task(example_server) == (Phase.CANCELLED, "its caller disconnected")
    assert answers == []


async def test_a_legacy_caller_whose_task_is_stopped_during_a_question_gets_an_error() -> None:
    example_server = ExampleServer()
    add_greeting(example_server)
    async with connected(example_server) as legacy:
        await legacy.call("greet")
        question = await legacy.asked()
        (task,) = (await example_server.tasks.engine.list_tasks()).tasks
        await example_server.tasks.engine.cancel(task.id, reason="closing time")
        withdrawn = await legacy.received.get()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", question["id"])
        await legacy.reply(question, result=YES)
        answered = await legacy.received.get()
        assert answered["error"]["message"] == "closing time"


async def call_tool(_: ServerRequestContext[Any, Any], __: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[TextContent(text="through")])


@pytest.mark.parametrize("state", ["raincheck:", "raincheck:unknown"])
async def test_a_state_means_nothing_to_a_version_that_has_none(state: str) -> None:
    """On a low-level server, where the SDK does not seal and check it."""
    server = Server[Any]("shop", on_call_tool=call_tool)
    Tasks(server, "memory:", settings=QUICK).enable("pass")
    async with in_memory(server) as transport:
        legacy = LegacyWire(transport)
        await legacy.greet()
        await legacy.call("pass", requestState=state)
        answered = await legacy.received.get()
        assert text_of(answered["result"]) == "through"


async def test_a_legacy_caller_is_asked_a_new_question_while_another_is_open() -> None:
    example_server = ExampleServer()
    is_asked = asyncio.Event()

    @example_server.tasks.tool
    async def ask_twice(task: TaskContext) -> str:
        async def ask_later() -> Any:
            await is_asked.wait()
            return await task.elicit("Two?", Name, name="two")

        one, two = await asyncio.gather(task.elicit("One?", Name, name="one"), ask_later())
        return f"{one.action} {two.action}"

    async with connected(example_server) as legacy:
        await legacy.call("ask_twice")
        question = await legacy.asked()
        is_asked.set()
        (task,) = (await example_server.tasks.engine.list_tasks()).tasks
        await example_server.tasks.engine.wait(task.id, until=lambda task: task.open_inputs == 2)
        await legacy.reply(question, result=YES)
        await legacy.reply(await legacy.asked(), result={"action": "decline"})
        assert text_of((await legacy.received.get())["result"]) == "accept decline"
