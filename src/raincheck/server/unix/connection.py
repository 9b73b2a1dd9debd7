"""Serve one connection over a Unix socket: one message per line, as on stdio, within limits."""

import asyncio
import socket
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

MAX_LINE_BYTES = DEFAULT_MAX_REQUEST_BODY_SIZE
"""Bytes: as many as a request over HTTP may have."""

MAX_UNREAD = 100
"""Messages that wait for the peer to read. While there are more, nothing that the peer sends is read either."""

DRAIN_TIMEOUT = 1.0
"""Seconds for the last messages of a connection that ends."""

READ_SIZE = 65_536


class LineTooLong(Exception):
    """A line is longer than allowed."""


class LineBuffer:
    """Splits received chunks into lines. Empty lines are ignored."""

    def __init__(self) -> None:
        self._incomplete = bytearray()

    def feed(self, piece: bytes) -> list[bytes | bytearray]:
        """Return the lines that are complete by now.

        Raises:
            LineTooLong: a line is longer than allowed, complete or not.
        """
        head, *rest = piece.split(b"\n")
        self._incomplete += head
        lines = [self._incomplete, *rest]
        if max(map(len, lines)) > MAX_LINE_BYTES:
            raise LineTooLong
        *complete, last = lines
        if rest:
            self._incomplete = bytearray(last)
        return [line for line in complete if line.strip()]


class MessageConnection:
    """A connection of a server. It receives messages for as long as the peer reads the messages that are sent to it."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._incoming, self._read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._write, self._outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        self._answers = self._write.clone()
        # Last messages are sent even if all else is cancelled: the SDK answers the requests that it cancels.
        self._send_scope = anyio.CancelScope(shield=True)
        self._sent = asyncio.Event()

    async def serve(self, server: Server[Any], state: object) -> None:
        """Serve the peer, until either side ends the connection."""
        with self._incoming, self._read, self._write, self._answers, self._outgoing:
            async with anyio.create_task_group() as group:
                group.start_soon(self._send, group.cancel_scope)
                group.start_soon(self._receive)
                await serve_dual_era_loop(server, self._read, self._write, lifespan_state=state)
                group.cancel_scope.cancel()

    async def _receive(self) -> None:
        """Receive until the peer stops sending. Then, or when this is cancelled, the connection ends."""
        try:
            async with self._incoming, self._answers:
                await self._receive_lines()
        except (OSError, anyio.BrokenResourceError) as error:
            logger.debug("a connection broke: %r", error)
        finally:
            self._limit_last_messages()

    async def _receive_lines(self) -> None:
        loop, lines = asyncio.get_running_loop(), LineBuffer()
        while piece := await loop.sock_recv(self._peer, READ_SIZE):
            try:
                complete = lines.feed(piece)
            except LineTooLong:
                logger.warning("closed a connection that sent a line of more than %d bytes", MAX_LINE_BYTES)
                # Before the error is sent, because the peer may not read that either.
                self._limit_last_messages()
                await self._send_error(INVALID_REQUEST, f"a message may have at most {MAX_LINE_BYTES} bytes")
                return
            for line in complete:
                await self._receive_line(line)
                while self._outgoing.statistics().tasks_waiting_send > MAX_UNREAD:
                    # The peer does not read, and messages to it must not pile up.
                    await self._sent.wait()
            # Yield to other background tasks: more input may be ready at once, again and again.
            await asyncio.sleep(0)

    async def _receive_line(self, line: bytes | bytearray) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            if error.errors(include_input=False, include_url=False)[0]["type"] == "json_invalid":
                await self._send_error(PARSE_ERROR, "this is not JSON")
            else:
                await self._send_error(INVALID_REQUEST, "this is not a JSON-RPC message")
        else:
            await self._incoming.send(SessionMessage(message))

    async def _send_error(self, code: int, message: str) -> None:
        await self._answers.send(SessionMessage(error_response(None, code, message)))

    async def _send(self, connection_scope: anyio.CancelScope) -> None:
        """Send until there are no more messages, or the peer is gone. Then the connection ends."""
        loop = asyncio.get_running_loop()
        with self._send_scope:
            try:
                async with self._outgoing:
                    async for message in self._outgoing:
                        await loop.sock_sendall(self._peer, encode_message(message.message))
                        self._sent.set()
                        self._sent.clear()
            except OSError as error:
                logger.debug("a connection broke: %r", error)
        connection_scope.cancel()

    def _limit_last_messages(self) -> None:
        """Set the deadline of the messages that are still to be sent, because the connection ends."""
        self._send_scope.deadline = anyio.current_time() + DRAIN_TIMEOUT


def error_response(request_id: RequestId | None, code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))


def encode_message(message: JSONRPCMessage) -> bytes:
    """Encode a message. If that fails, the caller gets an error, and the connection continues."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        # Mostly a lone surrogate, as in the name of a file that is not UTF-8.
        logger.exception("a message could not be sent")
        if not isinstance(message, JSONRPCResponse):
            return b""
        return encode_message(
            error_response(message.id, INTERNAL_ERROR, "the answer has characters that can't be sent")
        )
