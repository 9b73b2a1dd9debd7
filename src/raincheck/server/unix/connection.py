"""Serve one connection over a Unix socket: one message per line, as on stdio, within limits."""

import asyncio
import socket
from typing import Any, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
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

Incoming: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
Answers: TypeAlias = MemoryObjectSendStream[SessionMessage]
Outgoing: TypeAlias = MemoryObjectReceiveStream[SessionMessage]


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


class MessageReceiver:
    """Receives messages of the peer, for as long as the peer reads the messages that are sent to it."""

    def __init__(self, peer: socket.socket, incoming: Incoming, answers: Answers, sender: "MessageSender") -> None:
        self._peer = peer
        self._incoming = incoming
        self._answers = answers
        self._sender = sender

    async def run(self) -> None:
        """Receive until the peer stops sending. Then, or when this is cancelled, the connection ends."""
        try:
            async with self._incoming, self._answers:
                await self._receive()
        except (OSError, anyio.BrokenResourceError) as error:
            logger.debug("a connection broke: %r", error)
        finally:
            self._sender.finish()

    async def _receive(self) -> None:
        loop, lines = asyncio.get_running_loop(), LineBuffer()
        while piece := await loop.sock_recv(self._peer, READ_SIZE):
            try:
                complete = lines.feed(piece)
            except LineTooLong:
                logger.warning("closed a connection that sent a line of more than %d bytes", MAX_LINE_BYTES)
                # Before the error is sent, because the peer may not read that either.
                self._sender.finish()
                await self._send_error(INVALID_REQUEST, f"a message may have at most {MAX_LINE_BYTES} bytes")
                return
            for line in complete:
                await self._receive_line(line)
                await self._sender.drain()
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


class MessageSender:
    """Writes the messages of the server as lines."""

    def __init__(self, peer: socket.socket, outgoing: Outgoing) -> None:
        self._peer = peer
        self._outgoing = outgoing
        # Last messages are sent even if all else is cancelled: the SDK answers the requests that it cancels.
        self._scope = anyio.CancelScope(shield=True)
        self._sent = asyncio.Event()

    async def run(self, connection_scope: anyio.CancelScope) -> None:
        """Send until there are no more messages, or the peer is gone. Then the connection ends."""
        loop = asyncio.get_running_loop()
        with self._scope:
            try:
                async with self._outgoing:
                    async for message in self._outgoing:
                        await loop.sock_sendall(self._peer, encode_message(message.message))
                        self._sent.set()
                        self._sent.clear()
            except OSError as error:
                logger.debug("a connection broke: %r", error)
        connection_scope.cancel()

    async def drain(self) -> None:
        """Wait while the peer does not read, so that messages to it do not pile up."""
        while self._outgoing.statistics().tasks_waiting_send > MAX_UNREAD:
            await self._sent.wait()

    def finish(self) -> None:
        """Set the deadline of the messages that are still to be sent, because the connection ends."""
        self._scope.deadline = anyio.current_time() + DRAIN_TIMEOUT


async def serve_connection(peer: socket.socket, server: Server[Any], state: object) -> None:
    """Serve the peer, until either side ends the connection."""
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    answers = write.clone()
    sender = MessageSender(peer, outgoing)
    receiver = MessageReceiver(peer, incoming, answers, sender)
    with incoming, read, write, answers, outgoing:
        async with anyio.create_task_group() as group:
            group.start_soon(sender.run, group.cancel_scope)
            group.start_soon(receiver.run)
            await serve_dual_era_loop(server, read, write, lifespan_state=state)
            group.cancel_scope.cancel()


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
