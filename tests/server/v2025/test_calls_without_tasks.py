"""Callers of before 2026 wait on their connection, are asked there, and may leave: nothing goes on without them."""

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
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import YES, Gate, Name, add_gated, add_greeting, text_of
from tests.support.server.transports import MemoryWire, Message, in_memory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


class LegacyWire:
    """A connection of 2025: everything that comes is in one queue."""

    def __init__(self, wire: MemoryWire) -> None:
        self.wire = wire
        self.came: asyncio.Queue[Message] = asyncio.Queue()
        setattr(wire, "receive", self.came.put_nowait)  # noqa: B010 - in the place of a method

    async def greet(self) -> None:
        hello: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "old", "version": "1"},
        }
        await self.wire.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        assert (await self.came.get())["id"] == 0
        await self.wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, request_id: int = 1, **params: Any) -> None:
        params = {"name": tool, "arguments": {}, **params}
        await self.wire.send({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})

    async def asked(self) -> Message:
        question = await self.came.get()
        assert question["method"] == "elicitation/create", question
        return question

    async def reply(self, question: Message, **told: Any) -> None:
        await self.wire.send({"jsonrpc": "2.0", "id": question["id"], **told})

    async def cancel(self, request_id: int = 1) -> None:
        params = {"requestId": request_id}
        await self.wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


@asynccontextmanager
async def connected(shop: Shop) -> AsyncGenerator[LegacyWire]:
    async with in_memory(shop.mcp) as wire:
        legacy = LegacyWire(wire)
        await legacy.greet()
        yield legacy


async def the_end_of_the_only_task(shop: Shop) -> tuple[Phase, str | None]:
    (task,) = (await shop.tasks.engine.list_tasks()).tasks
    ended = (await shop.tasks.engine.wait(task.id)).task
    return ended.phase, ended.status_message


async def test_a_legacy_caller_is_asked_and_gets_its_result() -> None:
    shop = Shop()
    add_greeting(shop)
    async with connected(shop) as legacy:
        await legacy.call("greet")
        await legacy.reply(await legacy.asked(), result=YES)
        assert text_of((await legacy.came.get())["result"]) == "Hello, Ada!"


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
    shop = Shop()
    heard = add_greeting(shop)
    async with connected(shop) as legacy:
        await legacy.call("greet")
        await legacy.reply(await legacy.asked(), **answer)
        answered = await legacy.came.get()
        assert answered["id"] == 1
        told = answer.get("error", {"code": -32602})
        assert answered["error"]["code"] == told["code"]
        assert answered["error"]["message"] == told.get("message", answered["error"]["message"])
        assert await the_end_of_the_only_task(shop) == (Phase.FAILED, answered["error"]["message"])
    assert heard == []


async def test_a_legacy_caller_that_takes_its_call_back_stops_the_work() -> None:
    shop = Shop()
    gate: Gate = add_gated(shop)
    async with connected(shop) as legacy:
        await legacy.call("gated")
        await gate.begun.wait()
        await legacy.cancel()
        await gate.stopped.wait()
        assert await the_end_of_the_only_task(shop) == (Phase.CANCELLED, "its caller left")


async def test_a_legacy_caller_that_takes_its_call_back_while_it_is_asked_stops_the_work() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with connected(shop) as legacy:
        await legacy.call("greet")
        await legacy.asked()
        await legacy.cancel()
        assert await the_end_of_the_only_task(shop) == (Phase.CANCELLED, "its caller left")
    assert heard == []


async def test_a_legacy_caller_whose_task_was_stopped_while_it_was_asked_is_told_so() -> None:
    shop = Shop()
    add_greeting(shop)
    async with connected(shop) as legacy:
        await legacy.call("greet")
        question = await legacy.asked()
        (task,) = (await shop.tasks.engine.list_tasks()).tasks
        await shop.tasks.engine.cancel(task.id, reason="closing time")
        withdrawn = await legacy.came.get()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", question["id"])
        await legacy.reply(question, result=YES)
        answered = await legacy.came.get()
        assert answered["error"]["message"] == "closing time"


async def call_tool(_: ServerRequestContext[Any, Any], __: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[TextContent(text="through")])


@pytest.mark.parametrize("state", ["raincheck:", "raincheck:unknown"])
async def test_a_state_means_nothing_to_a_version_that_has_none(state: str) -> None:
    """On a low-level server, where the SDK does not seal and check it."""
    server = Server[Any]("shop", on_call_tool=call_tool)
    Tasks(server, "memory:", settings=QUICK).enable("pass")
    async with in_memory(server) as wire:
        legacy = LegacyWire(wire)
        await legacy.greet()
        await legacy.call("pass", requestState=state)
        answered = await legacy.came.get()
        assert text_of(answered["result"]) == "through"


async def test_a_legacy_caller_is_asked_what_comes_up_while_it_thinks_about_another_question() -> None:
    shop = Shop()
    is_asked = asyncio.Event()

    @shop.tasks.tool
    async def ask_twice(task: TaskContext) -> str:
        async def ask_later() -> Any:
            await is_asked.wait()
            return await task.elicit("Two?", Name, name="two")

        one, two = await asyncio.gather(task.elicit("One?", Name, name="one"), ask_later())
        return f"{one.action} {two.action}"

    async with connected(shop) as legacy:
        await legacy.call("ask_twice")
        question = await legacy.asked()
        is_asked.set()
        (task,) = (await shop.tasks.engine.list_tasks()).tasks
        await shop.tasks.engine.wait(task.id, until=lambda task: task.open_inputs == 2)
        await legacy.reply(question, result=YES)
        await legacy.reply(await legacy.asked(), result={"action": "decline"})
        assert text_of((await legacy.came.get())["result"]) == "accept decline"
