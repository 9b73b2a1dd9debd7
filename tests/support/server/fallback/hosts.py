"""Hosts that can't use tasks, of every version, in raw messages; and what their models make of the answers."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck.clock import Clock, SystemClock
from tests.support.server.caller_v2025 import G1Caller, connected
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import Shop
from tests.support.server.fallback.clock import WatchedClock
from tests.support.server.transports import HttpWire, Message, in_memory
from tests.support.server.transports_v2025 import g1_http, g1_memory, g1_serving

MODERN = "2026-07-28"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN)

ON_PLAIN_WIRES = pytest.mark.parametrize("way", ["memory", "http"])
BY_VERSIONS = pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
BY_ALL_VERSIONS = pytest.mark.parametrize("version", VERSIONS)

FIVE = ["task_wait", "task_status", "task_result", "task_cancel", "task_answer"]

LONGEST = 600
"""Characters that a model is told at once."""

CALL = re.compile(r"([\w.-]+) with (?=\{)")


class Model:
    """Reads what its host is answered, and makes the next call as it is spelled out there."""

    def __init__(self, caller: Caller | G1Caller, clock: Clock) -> None:
        self.caller = caller
        self.clock = clock
        self.open_for: list[float] = []
        """How many seconds each call was open, by the clock."""

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Message:
        began = self.clock.monotonic()
        answer = await self.caller.call(tool, arguments, **more)
        self.open_for.append(self.clock.monotonic() - began)
        return answer

    def begin(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> "asyncio.Task[Message]":
        return asyncio.create_task(self.call(tool, arguments, **more))

    async def go_on(self, answer: Message, **filled: Any) -> Message:
        """Make the next call, with what stands in for its placeholders."""
        tool, arguments = next_call(answer)
        return await self.call(tool, fill(arguments, filled))

    async def tools(self) -> dict[str, Message]:
        listed = (await self.caller.request("tools/list"))["tools"]
        by_name = {tool["name"]: tool for tool in listed}
        assert len(by_name) == len(listed), "each is listed once"
        return by_name

    async def window(self, calling: "asyncio.Task[Message]", wait: float = 45.0, last: float | None = None) -> Message:
        """Let the wait of a call pass, to its end or to that many seconds before; and the answer."""
        assert isinstance(self.clock, WatchedClock)
        await first_done(calling, self.clock.asleep(wait))
        if not calling.done():
            self.clock.advance(wait if last is None else last)
        return await calling


async def first_done(job: "asyncio.Task[Any]", other: Coroutine[Any, Any, object]) -> None:
    beside = asyncio.create_task(other)
    await asyncio.wait([job, beside], return_when=asyncio.FIRST_COMPLETED)
    beside.cancel()


def told(answer: Message) -> str:
    """What the model reads: one text, and not a long one."""
    (block,) = answer["content"]
    assert block["type"] == "text"
    assert len(block["text"]) < LONGEST, block["text"]
    return block["text"]


def calls_in(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Each call that a text spells out, as whoever only reads the text would make it."""
    return [(found[1], json.JSONDecoder().raw_decode(text, found.end())[0]) for found in CALL.finditer(text)]


def next_call(answer: Message) -> tuple[str, dict[str, Any]]:
    """The call to make next, which the text and the structured content agree on."""
    following = answer["structuredContent"]["next"]
    call = (following["tool"], following["arguments"])
    assert calls_in(told(answer))[0] == call
    return call


def fill(arguments: Mapping[str, Any], filled: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with the placeholders of an answer replaced. There must be something for each."""
    answer: dict[str, Any] | None = arguments.get("answer")
    if answer is None:
        return dict(arguments)
    return {**arguments, "answer": {name: filled.get(name, one) for name, one in answer.items()}}


def handle_of(answer: Message) -> str:
    """The id of the task that an answer stands for."""
    task_id = answer["structuredContent"]["task_id"]
    assert answer["_meta"]["raincheck/task"] == task_id
    assert not answer.get("isError")
    return task_id


class Place:
    """A server that hosts connect to."""

    def __init__(self, shop: Shop, http: HttpWire | None) -> None:
        self.shop = shop
        self.http = http

    @asynccontextmanager
    async def host(self, version: str = "2025-06-18", **options: Any) -> AsyncGenerator[Model]:
        """A host that declares nothing, unless told to."""
        clock: Clock = options.pop("clock", SystemClock())
        options.setdefault("capabilities", {})
        headers: dict[str, str] = options.pop("headers", {})
        if version == MODERN:
            if self.http is not None:
                yield Model(Caller(self.http, headers=headers, **options), clock)
                return
            async with in_memory(self.shop.mcp) as wire:
                yield Model(Caller(wire, **options), clock)
        elif self.http is not None:
            async with g1_http(self.http, **headers) as wire, connected(wire, version=version, **options) as caller:
                await wire.listen()
                yield Model(caller, clock)
        else:
            async with g1_memory(self.shop.mcp) as wire, connected(wire, version=version, **options) as caller:
                yield Model(caller, clock)


@asynccontextmanager
async def opened(shop: Shop, way: str = "memory") -> AsyncGenerator[Place]:
    if way == "memory":
        yield Place(shop, None)
        return
    async with g1_serving(shop.mcp, way) as http:
        yield Place(shop, http)


@asynccontextmanager
async def hosted(shop: Shop, version: str = "2025-06-18", way: str = "memory", **options: Any) -> AsyncGenerator[Model]:
    """One host of a server."""
    async with opened(shop, way) as place, place.host(version, **options) as model:
        yield model
