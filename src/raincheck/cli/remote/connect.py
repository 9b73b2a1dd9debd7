"""Connect to a server, explain connection failures, and report disconnects.

The client reconnects without notification, so a wrapper around its transport detects disconnects.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Any, Protocol, Self

from mcp.client import Transport
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.session import ElicitationFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import Implementation, JSONRPCError

from raincheck.cli.exit_codes import UsageError
from raincheck.cli.remote.target import CallTarget
from raincheck.client import (
    CallLost,
    InvalidResponse,
    RequestRefused,
    SavedCalls,
    ServerUnreachable,
    TaskClient,
    TaskRef,
)
from raincheck.client.errors import NO_SERVER
from raincheck.operations.describe import format_command
from raincheck.wire.fallback_text import format_duration

Incoming = SessionMessage | Exception


class ConnectionListener(Protocol):
    """Notified of disconnects."""

    def on_disconnect(self) -> None:
        """Called when the server does not respond, and the client reconnects."""
        ...

    def on_reconnect(self) -> None:
        """Called when the server responds again."""
        ...


class ConnectionMonitor:
    """Makes connections, and reports disconnects: each connection after the first response replaces a lost one."""

    def __init__(self, connect: Callable[[], Transport], listener: ConnectionListener) -> None:
        self._connect = connect
        self._listener = listener
        self._was_connected = False
        self._is_lost = False

    def connect(self) -> Transport:
        if self._was_connected and not self._is_lost:
            self._is_lost = True
            self._listener.on_disconnect()
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        async with self._connect() as (read, write):
            yield _ObservedStream(read, self._on_message), write

    def _on_message(self, message: Incoming) -> None:
        # If the server is unavailable, the transport itself produces an exception, or a response with an error.
        if isinstance(message, Exception) or isinstance(message.message, JSONRPCError):
            return
        self._was_connected = True
        if self._is_lost:
            self._is_lost = False
            self._listener.on_reconnect()


class _ObservedStream:
    """A stream of messages that reports each one to a callback."""

    def __init__(self, read: ReadStream[Incoming], on_message: Callable[[Incoming], None]) -> None:
        self._read = read
        self._on_message = on_message

    @property
    def last_context(self) -> object:
        """An attribute that the SDK reads from its streams."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> Incoming:
        message = await self._read.receive()
        self._on_message(message)
        return message

    async def aclose(self) -> None:
        await self._read.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        message = await anext(self._read)
        self._on_message(message)
        return message

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._read.__aexit__(exc_type, exc_val, exc_tb)


NOISY = ("mcp", "httpx2", "httpcore2", "raincheck")
"""The loggers that would print to the terminal."""

HINTS = {
    "connection attempts failed": "no server listens there: start it, or check the address",
    "Connection refused": "no server listens there: start it, or check the address",
    "No such file": "no server listens there: start it, or check the path",
    "Method not found": "it does not respond like an MCP server: check the address",
    "Name or service not known": "the host does not exist: check the address",
    "Unexpected content type": NO_SERVER,
    "Failed to parse": NO_SERVER,
    "missing an 'http": "the address names no host: correct it",
    "Connection closed": "it exited, or closed the connection, before it responded: check that it is an MCP server, "
    "and that it starts",
}
"""Remedies by a part of the error message."""


Guard = Callable[[Coroutine[Any, Any, object]], Awaitable[object]]
"""Waits for a coroutine, and may give up waiting for it."""


@asynccontextmanager
async def connect_client(
    target: CallTarget,
    *,
    saved_calls: SavedCalls | None,
    elicitation_callback: ElicitationFnT | None,
    timeout: float,  # noqa: ASYNC109 - it applies to connecting, not to the context
    guard: Guard | None = None,
    listener: ConnectionListener | None = None,
) -> AsyncGenerator[TaskClient]:
    """Connect a client. `guard` may give up waiting for the connection; `listener` is notified of later disconnects.

    Raises:
        UsageError: it can't connect. The error contains the reason, and what to do.
    """
    client_info = Implementation(name="raincheck", version=version("raincheck"))
    connect = target.connect if listener is None else ConnectionMonitor(target.connect, listener).connect
    client = TaskClient(
        connect,
        name=target.name,
        saved_calls=saved_calls,
        elicitation_callback=elicitation_callback,
        client_info=client_info,
    )
    try:
        async with asyncio.timeout(timeout):
            await (client.__aenter__() if guard is None else guard(client.__aenter__()))
    except TimeoutError as error:
        raise UsageError(
            f"{target.display_name} did not respond within {format_duration(timeout)}: check that it is an MCP server, "
            f"or allow more time with --connect-timeout{format_server_output(target)}"
        ) from error
    except ServerUnreachable as error:
        raise UsageError(explain_unreachable(target, error)) from error
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)


def explain_call_lost(target: CallTarget, error: CallLost) -> str:
    """Explain what to do about a call for which it is unknown whether it has started."""
    advice = (
        "The key does not help: the server does not declare that it accepts keys from you for this tool"
        if error.has_key
        else "If it must not run twice, use --idempotency-key from the first call on, if the server can identify you"
    )
    return (
        f"the connection to {target.display_name} broke during a call of {error.tool!r}, so it is unknown whether the "
        f"call was started: check before you call again. {advice}{format_server_output(target)}"
    )


def explain_unreachable(target: CallTarget, error: ServerUnreachable | InvalidResponse) -> str:
    """Explain why a server can't be reached, and what to do."""
    if isinstance(error, RequestRefused):
        remedy = target.hint()
        refused = f"{target.display_name} refused the request (HTTP {error.status})"
        return _without_secrets(target, error) if remedy is None else f"{refused}: {remedy}"
    # The first line of a library's message is meant for users.
    before, mark, reason = _without_secrets(target, error).partition("can't be reached: ")
    text = f"{before}{mark}{reason.partition(chr(10))[0]}"
    hint = target.hint() or next((hint for part, hint in HINTS.items() if part in text), None)
    return f"{text}{'' if hint is None else f'; {hint}'}{format_server_output(target)}"


def _without_secrets(target: CallTarget, error: Exception) -> str:
    # Replace the name first: once its secrets are removed, it would not be found. Not every secret can be removed.
    return target.redact(str(error).replace(target.name, target.display_name))


def is_tool_exception(error: MCPError) -> bool:
    """Return whether a raincheck server reports an exception of a tool, whose details only its operator sees."""
    data = error.error.data
    return isinstance(data, dict) and "errorId" in data


def explain_tool_exception(task_ref: TaskRef | None) -> str:
    """Explain where the server's operator sees the exception that the tool raised."""
    if task_ref is None:
        return "\n--verbose shows the exception"
    show = f"{format_command('tasks show', task_ref.task_id)} --store …"
    return f"\n{show}, with the server's store, shows the exception. So does --verbose while the tool runs"


def format_server_output(target: CallTarget) -> str:
    """Return the last lines of the stderr of a server that this command started."""
    lines = target.stderr_tail()
    return f"\nIts stderr:\n{lines}" if lines else ""


def silence_library_logs() -> None:
    """Silence the libraries' loggers: the command itself reports what matters."""
    for name in NOISY:
        logger = logging.getLogger(name)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
