"""Hosts without tasks of every version in raw messages, and models that follow the texts of the answers."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck.clock import Clock, SystemClock
from tests.support.server.caller_v2025 import V2025Caller, connected
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.transports import HttpTransport, Message, in_memory
from tests.support.server.transports_v2025 import v2025_http, v2025_memory, v2025_serving
from tests.support.watched_clock import WatchedClock

MODERN = "2026-07-28"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN)

ON_FALLBACK_TRANSPORTS = pytest.mark.parametrize("way", ["memory", "http"])
BY_VERSIONS = pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
BY_ALL_VERSIONS = pytest.mark.parametrize("version", VERSIONS)

FALLBACK_TOOL_NAMES = ["task_wait", "task_status", "task_result", "task_cancel", "task_answer"]

MAX_TEXT_LENGTH = 600
"""The limit of characters in one answer to a model."""

CALL = re.compile(r"([\w.-]+) with (?=\{)")


class Model:
    """A model that reads its host's answers, and makes the next call that they name."""

    def __init__(self, caller: Caller | V2025Caller, clock: Clock) -> None:
        self.caller = caller
        self.clock = clock
        self.open_for: list[float] = []
        """The seconds on the clock that each call was open."""

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Message:
        began = self.clock.monotonic()
        answer = await self.caller.call(tool, arguments, **more)
        self.open_for.append(self.clock.monotonic() - began)
        return answer

    def begin(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> "asyncio.Task[Message]":
        return asyncio.create_task(self.call(tool, arguments, **more))

    async def call_next(self, answer: Message, **filled: Any) -> Message:
        """Make the next call, with values for its placeholders."""
        tool, arguments = next_call(answer)
        return await self.call(tool, fill(arguments, filled))

    async def tools(self) -> dict[str, Message]:
        listed = (await self.caller.request("tools/list"))["tools"]
        by_name = {tool["name"]: tool for tool in listed}
        assert len(by_name) == len(listed), "each is listed once"
        return by_name

    async def finish_wait(
        self, calling: "asyncio.Task[Message]", wait: float = 45.0, last: float | None = None
    ) -> Message:
        """Advance the clock by the wait of a call, or by `last` seconds, and return the call's answer."""
        assert isinstance(self.clock, WatchedClock)
        await wait_for_first(calling, self.clock.asleep(wait))
        if not calling.done():
            self.clock.advance(wait if last is None else last)
        return await calling


async def wait_for_first(call: "asyncio.Task[Any]", other: Coroutine[Any, Any, object]) -> None:
    beside = asyncio.create_task(other)
    await asyncio.wait([call, beside], return_when=asyncio.FIRST_COMPLETED)
    beside.cancel()


def model_text(answer: Message) -> str:
    """The text that the model reads, which is a single short block."""
    (block,) = answer["content"]
    assert block["type"] == "text"
    assert len(block["text"]) < MAX_TEXT_LENGTH, block["text"]
    return block["text"]


def find_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Every call that a text contains, as a model that reads only text would make it."""
    return [(found[1], json.JSONDecoder().raw_decode(text, found.end())[0]) for found in CALL.finditer(text)]


def next_call(answer: Message) -> tuple[str, dict[str, Any]]:
    """The next call, on which the text and the structured content agree."""
    following = answer["structuredContent"]["next"]
    call = (following["tool"], following["arguments"])
    assert find_calls(model_text(answer))[0] == call
    return call


def fill(arguments: Mapping[str, Any], filled: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the placeholders of the answer replaced."""
    answer: dict[str, Any] | None = arguments.get("answer")
    if answer is None:
        return dict(arguments)
    return {**arguments, "answer": {name: filled.get(name, one) for name, one in answer.items()}}


def task_id_of(answer: Message) -> str:
    """The id of the task that an answer refers to."""
    task_id = answer["structuredContent"]["task_id"]
    assert answer["_meta"]["raincheck/task"] == task_id
    assert not answer.get("isError")
    return task_id


class HostedServer:
    """A server that several hosts can connect to."""

    def __init__(self, server: ExampleServer, http: HttpTransport | None) -> None:
        self.server = server
        self.http = http

    @asynccontextmanager
    async def host(self, version: str = "2025-06-18", **options: Any) -> AsyncGenerator[Model]:
        """A host, which declares no capabilities by default."""
        clock: Clock = options.pop("clock", SystemClock())
        options.setdefault("capabilities", {})
        headers: dict[str, str] = options.pop("headers", {})
        if version == MODERN:
            if self.http is not None:
                yield Model(Caller(self.http, headers=headers, **options), clock)
                return
            async with in_memory(self.server.mcp) as transport:
                yield Model(Caller(transport, **options), clock)
        elif self.http is not None:
            async with (
                v2025_http(self.http, **headers) as transport,
                connected(transport, version=version, **options) as caller,
            ):
                await transport.listen()
                yield Model(caller, clock)
        else:
            async with (
                v2025_memory(self.server.mcp) as transport,
                connected(transport, version=version, **options) as caller,
            ):
                yield Model(caller, clock)


@asynccontextmanager
async def hosted_server(server: ExampleServer, way: str = "memory") -> AsyncGenerator[HostedServer]:
    if way == "memory":
        yield HostedServer(server, None)
        return
    async with v2025_serving(server.mcp, way) as http:
        yield HostedServer(server, http)


@asynccontextmanager
async def connected_host(
    server: ExampleServer, version: str = "2025-06-18", way: str = "memory", **options: Any
) -> AsyncGenerator[Model]:
    """A server with one connected host."""
    async with hosted_server(server, way) as hosts, hosts.host(version, **options) as model:
        yield model
