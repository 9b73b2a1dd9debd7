"""Server targets of a command: a URL, a command line, or a Unix socket; and why one can't be reached.

Secrets in a URL are sent to the server, but neither saved nor shown. On a Unix socket each message is one line, as
on stdio.
"""

import asyncio
import os
import re
import shlex
import shutil
import sys
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, TextIO, cast
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

from raincheck.cli.exit_codes import UsageError
from raincheck.client import (
    CallLost,
    InvalidResponse,
    RequestRefused,
    ResponseTooLarge,
    ServerUnreachable,
    record_http_status,
)
from raincheck.client.client import default_server_name
from raincheck.client.connection import MAX_RESPONSE_BYTES, record_too_large, response_limiter
from raincheck.client.errors import NO_SERVER
from raincheck.operations.describe import MIN_SECRET_LENGTH, RedactedCommand, printable

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


class CallTarget(ABC):
    """A server that a command connects to."""

    name: str
    """The address with which to reach the server later, also from a different folder."""
    display_name: str
    """The server's name for display."""
    ends_with_command = False
    """Whether this command starts the server, which ends with the command."""
    has_secret = False
    """Whether the address contains a secret, so that `name` is not enough to reach the server."""

    @abstractmethod
    def connect(self) -> Transport:
        """Return a new connection."""

    def redact(self, text: str) -> str:
        """Return a text about the server without the secrets in its address."""
        return text

    def hint(self) -> str | None:
        """Return a remedy for the server's last response."""
        return None

    def format_stderr(self) -> str:
        """Return the last lines of the stderr of a server that this command started, as the end of a message."""
        return ""

    def explain_lost(self, error: CallLost) -> str:
        """Explain what to do about a call for which it is unknown whether it has started."""
        advice = (
            "The key does not help: the server does not declare that it accepts keys from you for this tool"
            if error.has_key
            else "If it must not run twice, use --idempotency-key from the first call on, if the server can identify "
            "you"
        )
        return (
            f"the connection to {self.display_name} broke during a call of {error.tool!r}, so it is unknown whether "
            f"the call was started: check before you call again. {advice}{self.format_stderr()}"
        )

    def explain_unreachable(self, error: ServerUnreachable | InvalidResponse) -> str:
        """Explain why the server can't be reached, and what to do."""
        # Replace the name first: once its secrets are removed, it would not be found. Not every secret can be removed.
        message, hint = self.redact(str(error).replace(self.name, self.display_name)), self.hint()
        if isinstance(error, RequestRefused):
            refused = f"{self.display_name} refused the request (HTTP {error.status})"
            return message if hint is None else f"{refused}: {hint}"
        # The first line of a library's message is meant for users.
        before, mark, reason = message.partition("can't be reached: ")
        text = f"{before}{mark}{reason.partition(chr(10))[0]}"
        hint = hint or next((hint for part, hint in HINTS.items() if part in text), None)
        return f"{text}{'' if hint is None else f'; {hint}'}{self.format_stderr()}"


HTTP_TIMEOUT = httpx2.Timeout(30, read=300)
"""The timeouts of the SDK's own client, in seconds: a stream may be silent for long."""

HTTP_SERVER_ERROR = 500

STATUSES = {
    401: "authentication is required: pass --header 'Authorization: Bearer …'",
    403: "access is denied: pass a different --header 'Authorization: …'",
    404: NO_SERVER,
    405: NO_SERVER,
}
"""Remedies by the status of an HTTP response."""

AUTH_STATUSES = (401, 403)

SECRETS_HINT = "or --server with the secrets in the address, which are not saved"


class UrlTarget(CallTarget):
    """A server at a URL, over Streamable HTTP."""

    def __init__(self, url: str, headers: Mapping[str, str], max_response_bytes: int, *, is_saved: bool) -> None:
        self.name = self.display_name = default_server_name(url) or url
        parts = urlsplit(url)
        self.has_secret = bool("@" in parts.netloc or parts.query)
        self._url = url
        self._is_saved = is_saved
        self._headers = dict(headers)
        self._max_response_bytes = max_response_bytes
        self._status = 0

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[TransportStreams]:
        limiter = response_limiter(self._max_response_bytes, record_too_large)
        async with (
            httpx2.AsyncClient(
                headers=self._headers,
                timeout=HTTP_TIMEOUT,
                event_hooks={"response": [record_http_status, self._record_status, limiter]},
            ) as http,
            streamable_http_client(self._url, http_client=http, max_sse_event_size=self._max_response_bytes) as streams,
        ):
            yield streams

    async def _record_status(self, response: httpx2.Response) -> None:
        # The SDK reports that there was an error, but not the status.
        self._status = response.status_code

    def hint(self) -> str | None:
        if self._status >= HTTP_SERVER_ERROR:
            return f"the server failed (HTTP {self._status}): see its log"
        hint = STATUSES.get(self._status)
        return f"{hint}, {SECRETS_HINT}" if self._is_saved and self._status in AUTH_STATUSES else hint

    def redact(self, text: str) -> str:
        parts = urlsplit(self._url)
        secrets = [self._url, f"{parts.netloc.rpartition('@')[0]}@", f"?{parts.query}", parts.query, parts.password]
        for secret in secrets:
            if secret is not None and len(secret) >= MIN_SECRET_LENGTH:
                text = text.replace(secret, self.name if secret == self._url else "")
        return text


UNIX = "unix:"

VARIABLE = re.compile(r"\w+=")

STDERR_LINES = 8
"""The number of lines of a server's stderr to show after it failed."""

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def unix_client(path: str, max_response_bytes: int = MAX_RESPONSE_BYTES) -> AsyncGenerator[Streams]:
    """Connect to the server that listens at a path. A message may have `max_response_bytes`.

    Raises:
        OSError: no server listens there.
    """
    reader, writer = await asyncio.open_unix_connection(path, limit=max_response_bytes)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        async with incoming:
            # A line that is too long or cut off ends the stream: the following messages could not be delimited.
            with suppress(OSError, anyio.BrokenResourceError):
                try:
                    while line := await reader.readline():
                        await incoming.send(_message(line))
                except ValueError:
                    record_too_large(ResponseTooLarge(None, max_response_bytes))

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


class UnixTarget(CallTarget):
    """A server on a Unix socket."""

    def __init__(self, path: Path, max_response_bytes: int) -> None:
        self._max_response_bytes = max_response_bytes
        self.display_name = f"{UNIX}{path}"
        self.name = f"{UNIX}{path.absolute()}"

    def connect(self) -> Transport:
        return unix_client(self.name.removeprefix(UNIX), self._max_response_bytes)


class CommandTarget(CallTarget):
    """A server started as a child process on stdio. It inherits the whole environment, as in a shell."""

    ends_with_command = True

    def __init__(self, words: list[str], folder: Path, *, shows_stderr: bool) -> None:
        self._redacted = RedactedCommand(words)
        self.display_name = self._redacted.text
        # The folder is part of the name: arguments may name files relative to it.
        self.name = f"cd {shlex.quote(str(folder))} && {shlex.join(words)}"
        self._parameters = StdioServerParameters(
            command=words[0], args=words[1:], env=dict(os.environ), cwd=folder, encoding_error_handler="replace"
        )
        self._shows_stderr = shows_stderr
        self._log: IO[str] | None = None

    def connect(self) -> Transport:
        if self._log is None and not self._shows_stderr:
            self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - open for the lifetime of the process
            weakref.finalize(self, self._log.close)
        return stdio_client(self._parameters, errlog=cast("TextIO", self._log or sys.stderr))

    def format_stderr(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = [printable(line) for line in self.redact(self._log.read()).splitlines() if line.strip()]
        return "".join(["\nIts stderr:", *(f"\n  {line}" for line in lines[-STDERR_LINES:])]) if lines else ""

    def redact(self, text: str) -> str:
        return self._redacted.redact(text)


def parse_target(
    text: str,
    headers: Mapping[str, str],
    *,
    max_response_bytes: int = MAX_RESPONSE_BYTES,
    show_stderr: bool = False,
    is_saved: bool = False,
) -> CallTarget:
    """Return the target that a text names.

    A command's stderr is shown at once with `show_stderr`, otherwise recorded for when it fails. Its stdout is read by
    the SDK, which has no limit for it. A saved address (`is_saved`) contains no secrets.

    Raises:
        UsageError: the text names no server. The error suggests what to write.
    """
    if text.startswith(("http://", "https://")):
        try:
            return UrlTarget(text, headers, max_response_bytes, is_saved=is_saved)
        except ValueError as error:
            raise UsageError(f"the URL is invalid ({error}): correct it") from error
    if headers:
        raise UsageError("--header is only for servers with a URL: pass secrets to a command in its environment")
    if text.startswith(UNIX):
        path = Path(text.removeprefix(UNIX)).expanduser()
        if not path.exists():
            raise UsageError(f"there is no socket {path.absolute()}: start the server, or check the path")
        return UnixTarget(path, max_response_bytes)
    words, folder = _read_command(text)
    _check_command(text, words, folder)
    return CommandTarget(words, folder, shows_stderr=show_stderr)


def _read_command(text: str) -> tuple[list[str], Path]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        # The text is not repeated, because it may contain a secret.
        raise UsageError(f"the command of the server can't be parsed ({error}): quote it as in a shell") from error
    match words:
        case ["cd", folder, "&&", *command]:
            return command, Path(folder).expanduser().absolute()
        case _:
            return words, Path.cwd()


def _check_command(text: str, words: list[str], folder: Path) -> None:
    hint = 'name a server: "raincheck serve server.py", http://127.0.0.1:8000/mcp or unix:/path/of.sock'
    if not words:
        raise UsageError(f"{text!r} names no server: {hint}")
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} to start {RedactedCommand(words).text} in: create it first")
    program = words[0]
    if len(words) == 1 and program.partition(":")[0].endswith((".py", ".yaml", ".yml")):
        raise UsageError(f'{program} is a file, not a command: write "raincheck serve {program}"')
    if shutil.which(folder / program if os.sep in program else program) is None:
        raise UsageError(
            f"there is no program {RedactedCommand([program]).text!r} here or on your PATH: "
            f"{_suggest_target(program) or hint}"
        )


def _suggest_target(program: str) -> str | None:
    """Suggest what to write for a word that is not a program."""
    if VARIABLE.match(program):
        return "set the variable before `raincheck`, or with env, as in 'env NAME=… python …'"
    if ":" in program or program.startswith("localhost"):
        return f"write http://{program}"
    return None
