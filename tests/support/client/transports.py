"""Transports that rewrite messages, in-memory connections, and clocks."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from mcp.client import Transport
from mcp.server.mcpserver import MCPServer
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from raincheck.testing import FakeClock

Rewrite = Callable[[JSONRPCMessage], None]
"""Changes a message on its way."""


class _Stream:
    """One end of a connection, whose messages are changed on their way."""

    def __init__(self, stream: Any, rewrite: Rewrite) -> None:
        self._stream = stream
        self._rewrite = rewrite

    async def send(self, item: SessionMessage) -> None:
        self._rewrite(item.message)
        await self._stream.send(item)

    async def receive(self) -> SessionMessage | Exception:
        item = await self._stream.receive()
        if isinstance(item, SessionMessage):
            self._rewrite(item.message)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item = await anext(self._stream)
        if isinstance(item, SessionMessage):
            self._rewrite(item.message)
        return item

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)


@asynccontextmanager
async def rewritten(transport: Transport, sent: Rewrite, came: Rewrite) -> AsyncGenerator[Any]:
    async with transport as (read, write):
        yield _Stream(read, came), _Stream(write, sent)


class DelayedAnswers:
    """A connection that delays the client's answers to questions."""

    def __init__(self) -> None:
        self.is_sent = asyncio.Event()
        """The client has sent an answer."""
        self.is_withdrawn = asyncio.Event()
        """The server has withdrawn a question, which in 2025-11-25 it does when the request of its caller ends."""
        self.may_pass = asyncio.Event()

    @asynccontextmanager
    async def on(self, transport: Transport) -> AsyncGenerator[Any]:
        async with transport as (read, write):
            stream = _Stream(write, _pass)
            send = stream.send

            async def hold(item: SessionMessage) -> None:
                message = item.message
                is_answer = isinstance(message, JSONRPCRequest) and message.method == "tasks/update"
                if is_answer or isinstance(message, JSONRPCResponse):
                    self.is_sent.set()
                    await self.may_pass.wait()
                await send(item)

            stream.send = hold
            yield _Stream(read, self._note), stream

    def _note(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self.is_withdrawn.set()


def without_tasks(transport: Any) -> AbstractAsyncContextManager[Any]:
    """A connection that negotiates a version without tasks."""
    return rewritten(transport, _ask_for_older, _pass)


def hide_tasks(transport: Any) -> AbstractAsyncContextManager[Any]:
    """A connection that hides the server's task capabilities."""
    return rewritten(transport, _pass, _hide_tasks)


def _pass(message: JSONRPCMessage) -> None:
    """Leave the message unchanged."""


def _ask_for_older(message: JSONRPCMessage) -> None:
    if isinstance(message, JSONRPCRequest) and message.method == "initialize":
        assert message.params is not None
        message.params["protocolVersion"] = "2025-06-18"


def _hide_tasks(message: JSONRPCMessage) -> None:
    if isinstance(message, JSONRPCResponse) and "capabilities" in message.result:
        message.result["capabilities"].pop("tasks", None)
        message.result["capabilities"].pop("extensions", None)


@asynccontextmanager
async def in_memory(server: MCPServer[Any]) -> AsyncGenerator[Any]:
    """A connection to a server in this process, in messages."""
    lowlevel: Any = getattr(server, "_lowlevel_server")  # noqa: B009 - it has no public name
    async with create_client_server_memory_streams() as (ours, (read, write)):
        serving = asyncio.create_task(lowlevel.run(read, write, lowlevel.create_initialization_options()))
        try:
            yield ours
        finally:
            await ours[1].aclose()
            await serving


class SkippingClock(FakeClock):
    """Advances by itself when code sleeps for up to `longest` seconds, and records the sleeps."""

    def __init__(self, longest: float = math.inf) -> None:
        super().__init__()
        self.longest = longest
        self.slept: list[float] = []
        self.bounds: asyncio.Queue[float] = asyncio.Queue()
        """The timeouts that were set."""

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return self._skip(seconds)

    async def _skip(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.now() + timedelta(seconds=seconds)
        if seconds > self.longest:
            await self._sleep_until(until)
            return
        # Let all other tasks run first.
        for _ in range(20):
            await asyncio.sleep(0)
        if until > self.now():
            self.advance((until - self.now()).total_seconds())

    def forget_bounds(self) -> None:
        while not self.bounds.empty():
            self.bounds.get_nowait()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Callable[[], object]:
        self.bounds.put_nowait(seconds)
        return super().call_later(seconds, callback)
