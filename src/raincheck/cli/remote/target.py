"""Servers as somebody names them in a shell: a URL, a command, or a Unix socket.

Servers at a URL. What may be secret in that is sent, and neither kept nor shown.

A connection to a server on a Unix socket, for the SDK's client: a message a line, as on stdio.
"""

import asyncio
import os
import re
import shlex
import shutil
import sys
import tempfile
import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Protocol, TextIO, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client import Transport
from mcp.client._transport import TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from raincheck.cli.exit_codes import Unusable
from raincheck.client import note_status
from raincheck.client.errors import NO_SERVER
from raincheck.client.options import name_of
from raincheck.operations.describe import printable
from raincheck.operations.redact import SHORTEST_SECRET, cover

HTTP_TIMEOUT = httpx2.Timeout(30, read=300)
"""Seconds, as the SDK's own client has them: a stream may be silent for long."""

HTTP_OWN_FAULT = 500

STATUSES = {
    401: "it wants to know who you are: give --header 'Authorization: Bearer …'",
    403: "it does not let you in: give another --header 'Authorization: …'",
    404: NO_SERVER,
    405: NO_SERVER,
}
"""What to do about what an HTTP server answers."""

ASKS_WHO = (401, 403)

AGAIN = "or the address with what is secret in it, which is not kept, by --server"


class UrlTarget:
    """Streamable HTTP."""

    ends_with_us = False

    def __init__(self, url: str, headers: Mapping[str, str], *, is_kept: bool) -> None:
        self.name = self.shown = name_of(url) or url
        parts = urlsplit(url)
        self.has_secret = bool("@" in parts.netloc or parts.query)
        self._url = url
        self._is_kept = is_kept
        self._headers = dict(headers)
        self._status = 0

    def connect(self) -> Transport:
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        async with (
            httpx2.AsyncClient(
                headers=self._headers, timeout=HTTP_TIMEOUT, event_hooks={"response": [note_status, self._note]}
            ) as http,
            streamable_http_client(self._url, http_client=http) as streams,
        ):
            yield streams

    async def _note(self, response: httpx2.Response) -> None:
        # The SDK tells that there was an error, and not which.
        self._status = response.status_code

    def last_words(self) -> str:
        return ""

    def hint(self) -> str | None:
        if self._status >= HTTP_OWN_FAULT:
            return f"it has an error of its own (HTTP {self._status}): see what it logs"
        hint = STATUSES.get(self._status)
        return f"{hint}, {AGAIN}" if self._is_kept and self._status in ASKS_WHO else hint

    def cleaned(self, text: str) -> str:
        parts = urlsplit(self._url)
        secrets = [self._url, f"{parts.netloc.rpartition('@')[0]}@", f"?{parts.query}", parts.query, parts.password]
        for secret in secrets:
            if secret is not None and len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, self.name if secret == self._url else "")
        return text


LONGEST_LINE = 64 * 2**20
"""Bytes of an answer. Results are bounded by their servers, and not by us."""

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def unix_client(path: str) -> AsyncGenerator[Streams]:
    """Connect to the server that listens at a path.

    Raises:
        OSError: nobody does.
    """
    reader, writer = await asyncio.open_unix_connection(path, limit=LONGEST_LINE)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        async with incoming:
            # One that is too long, or cut off, is the end: what follows could not be told apart.
            with suppress(ValueError, OSError, anyio.BrokenResourceError):
                while line := await reader.readline():
                    await incoming.send(_message(line))

    async def send() -> None:
        async with outgoing:
            with suppress(OSError):
                async for message in outgoing:
                    writer.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await writer.drain()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            group.start_soon(send)
            with incoming, read, write, outgoing:
                yield read, write
            group.cancel_scope.cancel()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


UNIX = "unix:"

VARIABLE = re.compile(r"\w+=")

LAST_LINES = 8
"""Of what a server said before it ended."""


class Target(Protocol):
    """A server."""

    @property
    def name(self) -> str:
        """What finds it again, on another day and from another folder."""
        ...

    @property
    def shown(self) -> str:
        """What it is called where somebody reads."""
        ...

    ends_with_us: bool
    """Whether it is a process that we start, and that ends when we do."""

    has_secret: bool
    """Whether its name is not all that it takes to reach it, since the address has a secret in it."""

    def connect(self) -> Transport:
        """A new connection."""
        ...

    def cleaned(self, text: str) -> str:
        """What others say of it, without what is secret in its address."""
        ...

    def last_words(self) -> str:
        """What it said last, beside the protocol."""
        ...

    def hint(self) -> str | None:
        """What to do, by what its last answer was."""
        ...


class UnixTarget:
    """A server on a Unix socket."""

    ends_with_us = False
    has_secret = False

    def __init__(self, path: Path) -> None:
        self.shown = f"{UNIX}{path}"
        self.name = f"{UNIX}{path.absolute()}"

    def connect(self) -> Transport:
        return unix_client(self.name.removeprefix(UNIX))

    def last_words(self) -> str:
        return ""

    def hint(self) -> str | None:
        return None

    def cleaned(self, text: str) -> str:
        return text


class CommandTarget:
    """A process that speaks on stdio. It gets the whole environment, as if it were started in the shell."""

    ends_with_us = True
    has_secret = False

    def __init__(self, words: list[str], folder: Path, *, is_heard: bool) -> None:
        self._covered = cover(words)
        self.shown = self._covered.text
        # Where it is started matters as much: it may be told of files beside it.
        self.name = f"cd {shlex.quote(str(folder))} && {shlex.join(words)}"
        self._parameters = StdioServerParameters(
            command=words[0], args=words[1:], env=dict(os.environ), cwd=folder, encoding_error_handler="replace"
        )
        self._is_heard = is_heard
        self._log: IO[str] | None = None

    def connect(self) -> Transport:
        if self._log is None and not self._is_heard:
            self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - it is there for as long as we are
            weakref.finalize(self, self._log.close)
        return stdio_client(self._parameters, errlog=cast("TextIO", self._log or sys.stderr))

    def last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = [printable(line) for line in self.cleaned(self._log.read()).splitlines() if line.strip()]
        return "\n".join(f"  {line}" for line in lines[-LAST_LINES:])

    def hint(self) -> str | None:
        return None

    def cleaned(self, text: str) -> str:
        return self._covered.clean(text)


def read_target(text: str, headers: Mapping[str, str], *, is_heard: bool = False, is_kept: bool = False) -> Target:
    """The server that is meant. What a command says on stderr is kept for when it fails, or heard at once.

    If its name was kept, it is without what is secret.

    Raises:
        Unusable: it can't be one; it says what to write.
    """
    if text.startswith(("http://", "https://")):
        try:
            return UrlTarget(text, headers, is_kept=is_kept)
        except ValueError as error:
            raise Unusable(f"that is no URL ({error}): mend it") from error
    if headers:
        raise Unusable("headers are for servers with a URL: one that is a command is told by its environment")
    if text.startswith(UNIX):
        path = Path(text.removeprefix(UNIX)).expanduser()
        if not path.exists():
            raise Unusable(f"there is no socket {path.absolute()}: start the server, or mend the path")
        return UnixTarget(path)
    words, folder = _read_command(text)
    _check_command(text, words, folder)
    return CommandTarget(words, folder, is_heard=is_heard)


def _read_command(text: str) -> tuple[list[str], Path]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        # Not repeated: there may be something secret in it.
        raise Unusable(f"the server can't be split into words ({error}): quote it as in a shell") from error
    match words:
        case ["cd", folder, "&&", *command]:
            return command, Path(folder).expanduser().absolute()
        case _:
            return words, Path.cwd()


def _check_command(text: str, words: list[str], folder: Path) -> None:
    what = 'name a server: "raincheck serve server.py", http://127.0.0.1:8000/mcp or unix:/path/of.sock'
    if not words:
        raise Unusable(f"{text!r} names no server: {what}")
    if not folder.is_dir():
        raise Unusable(f"the folder {folder}, where {cover(words).text} is to be started, is not there")
    program = words[0]
    if len(words) == 1 and program.partition(":")[0].endswith((".py", ".yaml", ".yml")):
        raise Unusable(f'{program} is a file, and not a command: write "raincheck serve {program}"')
    if shutil.which(folder / program if os.sep in program else program) is None:
        raise Unusable(
            f"there is no program {cover([program]).text!r} here or on your PATH: {_instead(program) or what}"
        )


def _instead(program: str) -> str | None:
    """What to write for a word that is no program."""
    if VARIABLE.match(program):
        return (
            "a variable is set before raincheck itself, and the server gets it; or by env, as in 'env NAME=… python …'"
        )
    if ":" in program or program.startswith("localhost"):
        return f"write http://{program}"
    return None
