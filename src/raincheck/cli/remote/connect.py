"""Getting through to a server, and saying in plain words why that failed.

Noticing that a server is away, and that it is back. The client connects again by itself, and says nothing of it.
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

from raincheck.cli.exit_codes import Unusable
from raincheck.cli.remote.target import Target
from raincheck.client import BadAnswer, CallLost, RequestRefused, ServerUnreachable, Slip, TaskBook, TaskClient
from raincheck.client.errors import NO_SERVER
from raincheck.operations.describe import typed
from raincheck.wire.fallback_text import in_words

Incoming = SessionMessage | Exception


class Told(Protocol):
    """Who is told."""

    def lost(self) -> None:
        """The server does not answer, and is tried again."""
        ...

    def back(self) -> None:
        """It answers again."""
        ...


class Contact:
    """Makes connections. Each one after the first answer means that the one before is lost."""

    def __init__(self, connect: Callable[[], Transport], told: Told) -> None:
        self._connect = connect
        self._told = told
        self._was_there = False
        self._is_lost = False

    def connect(self) -> Transport:
        if self._was_there and not self._is_lost:
            self._is_lost = True
            self._told.lost()
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        async with self._connect() as (read, write):
            yield _Heard(read, self._hear), write

    def _hear(self, message: Incoming) -> None:
        # Of a server that is away, transports tell in its place: by an exception, or by an answer with an error.
        if isinstance(message, Exception) or isinstance(message.message, JSONRPCError):
            return
        self._was_there = True
        if self._is_lost:
            self._is_lost = False
            self._told.back()


class _Heard:
    """A stream of messages, with somebody who listens in."""

    def __init__(self, read: ReadStream[Incoming], hear: Callable[[Incoming], None]) -> None:
        self._read = read
        self._hear = hear

    @property
    def last_context(self) -> object:
        """What the SDK looks for beside the protocol."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> Incoming:
        message = await self._read.receive()
        self._hear(message)
        return message

    async def aclose(self) -> None:
        await self._read.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        message = await anext(self._read)
        self._hear(message)
        return message

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._read.__aexit__(exc_type, exc_val, exc_tb)


NOISY = ("mcp", "httpx2", "httpcore2", "raincheck")
"""What would print to a terminal whatever it has to log."""

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
"""What to do, by words in what went wrong."""


Guard = Callable[[Coroutine[Any, Any, object]], Awaitable[object]]
"""Waits for something that somebody may not want to wait for."""


@asynccontextmanager
async def reach(
    target: Target,
    *,
    book: TaskBook | None,
    asked: ElicitationFnT | None,
    within: float,
    guard: Guard | None = None,
    told: Told | None = None,
) -> AsyncGenerator[TaskClient]:
    """A client that is connected. The guard may give up waiting for that; later losses are told of.

    Raises:
        Unusable: it can't be connected; it says why, and what to do.
    """
    ours = Implementation(name="raincheck", version=version("raincheck"))
    connect = target.connect if told is None else Contact(target.connect, told).connect
    client = TaskClient(connect, name=target.name, book=book, elicitation_callback=asked, client_info=ours)
    try:
        async with asyncio.timeout(within):
            await (client.__aenter__() if guard is None else guard(client.__aenter__()))
    except TimeoutError as error:
        raise Unusable(
            f"{target.shown} did not answer within {in_words(within)}: see that it is an MCP server, or give it longer "
            f"with --connect-timeout{said_by(target)}"
        ) from error
    except ServerUnreachable as error:
        raise Unusable(explain_lost(target, error)) from error
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)


def explain_broken(target: Target, error: CallLost) -> str:
    """What to do about a call of which nobody knows whether it has begun."""
    advice = (
        "the key does not help, since the server does not say that it takes one from you for this tool"
        if error.has_key
        else "where it must not run twice, call with --idempotency-key in the first place, if the server knows you"
    )
    return (
        f"the connection to {target.shown} broke while {error.tool!r} was called: it may have run, or not. Look before "
        f"you call it again; {advice}{said_by(target)}"
    )


def explain_lost(target: Target, error: ServerUnreachable | BadAnswer) -> str:
    """Why a server can't be talked to, and what to do."""
    if isinstance(error, RequestRefused):
        to_do = target.hint()
        refused = f"{target.shown} refuses what it is asked (HTTP {error.status})"
        return _without_secrets(target, error) if to_do is None else f"{refused}: {to_do}"
    # Of what a library says, the first line is for people.
    before, mark, reason = _without_secrets(target, error).partition("can't be reached: ")
    words = f"{before}{mark}{reason.partition(chr(10))[0]}"
    hint = target.hint() or next((hint for part, hint in HINTS.items() if part in words), None)
    return f"{words}{'' if hint is None else f'; {hint}'}{said_by(target)}"


def _without_secrets(target: Target, error: Exception) -> str:
    # The name first: without its secrets it would not be found, and not all of them can be.
    return target.cleaned(str(error).replace(target.name, target.shown))


def is_raised(error: MCPError) -> bool:
    """Whether a server of raincheck tells that a tool raised something, which it keeps for its operator."""
    data = error.error.data
    return isinstance(data, dict) and "errorId" in data


def explain_raised(slip: Slip | None) -> str:
    """Where somebody whose server it is sees what the tool raised."""
    if slip is None:
        return "\n--verbose shows what it raised"
    show = f"{typed('tasks show', slip.task_id)} --store …, with the store that the server uses, shows what it raised"
    return f"\n{show}; so does --verbose, while it runs"


def said_by(target: Target) -> str:
    """The last lines of what a server said of itself, where it is a process of ours."""
    words = target.last_words()
    return f"\nIt said:\n{words}" if words else ""


def quiet() -> None:
    """Keep what libraries log from the terminal: what matters of it is told by the command."""
    for name in NOISY:
        logger = logging.getLogger(name)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
