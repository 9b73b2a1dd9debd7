"""Connect to a server, explain connection failures, and report disconnects.

The client reconnects by itself without notification, so a wrapper around its transport detects disconnects.
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

    def __init__(self, connect: Callable[[], Transport], told: ConnectionListener) -> None:
        self._connect = connect
        self._told = told
        self._was_there = False
        self._is_lost = False

    def connect(self) -> Transport:
        if self._was_there and not self._is_lost:
            self._is_lost = True
            self._told.on_disconnect()
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        async with self._connect() as (read, write):
            yield _ObservedStream(read, self._on_message), write

    def _on_message(self, message: Incoming) -> None:
        # For an unavailable server, the transport itself produces an exception, or a response with an error.
        if isinstance(message, Exception) or isinstance(message.message, JSONRPCError):
            return
        self._was_there = True
        if self._is_lost:
            self._is_lost = False
            self._told.on_reconnect()


class _ObservedStream:
    """A stream of messages that reports each one to a callback."""

    def __init__(self, read: ReadStream[Incoming], hear: Callable[[Incoming], None]) -> None:
        self._read = read
        self._on_message = hear

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
    "connection attempts failed": "nothing listens there: start the server, or mend the address",
    "Connection refused": "nothing listens there: start the server, or mend the address",
    "No such file": "nothing listens there: start the server, or mend the path",
    "Method not found": "it does not speak MCP as a server does: see that it is one",
    "Name or service not known": "there is no such host: mend the address",
    "Unexpected content type": NO_SERVER,
    "Failed to parse": NO_SERVER,
    "missing an 'http": "it names no host: mend the address",
    "Connection closed": "it ended, or hung up, before it answered: see that it is an MCP server, and starts by itself",
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
    timeout: float,  # noqa: ASYNC109 - it bounds connecting, not what follows
    guard: Guard | None = None,
    listener: ConnectionListener | None = None,
) -> AsyncGenerator[TaskClient]:
    """Connect a client. `guard` may give up waiting for the connection; `listener` is notified of later disconnects.

    Raises:
        UsageError: it can't connect. The error says why, and what to do.
    """
    ours = Implementation(name="raincheck", version=version("raincheck"))
    connect = target.connect if listener is None else ConnectionMonitor(target.connect, listener).connect
    client = TaskClient(
        connect, name=target.name, saved_calls=saved_calls, elicitation_callback=elicitation_callback, client_info=ours
    )
    try:
        async with asyncio.timeout(timeout):
            await (client.__aenter__() if guard is None else guard(client.__aenter__()))
    except TimeoutError as error:
        raise UsageError(
            f"{target.display_name} did not answer within {format_duration(timeout)}: see that it is an MCP server, or "
            f"give it longer with --connect-timeout{format_server_output(target)}"
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
        "the key does not help, since the server does not say that it takes one from you for this tool"
        if error.has_key
        else "where it must not run twice, call with --idempotency-key in the first place, if the server knows you"
    )
    return (
        f"the connection to {target.display_name} broke while {error.tool!r} was called: it may have run, or not. "
        f"Look before you call it again; {advice}{format_server_output(target)}"
    )


def explain_unreachable(target: CallTarget, error: ServerUnreachable | InvalidResponse) -> str:
    """Explain why a server can't be reached, and what to do."""
    if isinstance(error, RequestRefused):
        to_do = target.hint()
        refused = f"{target.display_name} refuses what it is asked (HTTP {error.status})"
        return _without_secrets(target, error) if to_do is None else f"{refused}: {to_do}"
    # The first line of a library's message is the one for users.
    before, mark, reason = _without_secrets(target, error).partition("can't be reached: ")
    words = f"{before}{mark}{reason.partition(chr(10))[0]}"
    hint = target.hint() or next((hint for part, hint in HINTS.items() if part in words), None)
    return f"{words}{'' if hint is None else f'; {hint}'}{format_server_output(target)}"


def _without_secrets(target: CallTarget, error: Exception) -> str:
    # Replace the name first: without its secrets it would not be found, and not all of them can be.
    return target.redact(str(error).replace(target.name, target.display_name))


def is_tool_exception(error: MCPError) -> bool:
    """Return whether a raincheck server reports an exception of a tool, whose details only its operator sees."""
    data = error.error.data
    return isinstance(data, dict) and "errorId" in data


def explain_tool_exception(task_ref: TaskRef | None) -> str:
    """Explain where the server's operator sees what the tool raised."""
    if task_ref is None:
        return "\n--verbose shows what it raised"
    show = f"{format_command('tasks show', task_ref.task_id)} --store …"
    return f"\n{show}, with the store that the server uses, shows what it raised; so does --verbose, while it runs"


def format_server_output(target: CallTarget) -> str:
    """Return the last lines of the stderr of a server that this command started."""
    words = target.stderr_tail()
    return f"\nIt said:\n{words}" if words else ""


def silence_library_logs() -> None:
    """Silence the libraries' loggers: the command itself reports what matters."""
    for name in NOISY:
        logger = logging.getLogger(name)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
