"""One connection over a Unix socket: a message a line, as on stdio, and bounded."""

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

LONGEST_LINE = DEFAULT_MAX_REQUEST_BODY_SIZE
"""Bytes: as many as a request over HTTP may have."""

MOST_UNREAD = 100
"""Messages that wait for the other end to read. As long as there are more, nothing that it sends is read either."""

PARTING = 1.0
"""Seconds for the last messages of a connection that ends."""

PIECE = 65_536

Incoming: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
Answers: TypeAlias = MemoryObjectSendStream[SessionMessage]
Outgoing: TypeAlias = MemoryObjectReceiveStream[SessionMessage]


class LineTooLong(Exception):
    """More is sent in one line than is allowed."""


class Lines:
    """Cuts what comes in pieces into lines. Empty ones mean nothing."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def feed(self, piece: bytes) -> list[bytes | bytearray]:
        """The lines that are whole by now.

        Raises:
            LineTooLong: one is longer than allowed, whole or not.
        """
        head, *others = piece.split(b"\n")
        self._begun += head
        lines = [self._begun, *others]
        if max(map(len, lines)) > LONGEST_LINE:
            raise LineTooLong
        *whole, last = lines
        if others:
            self._begun = bytearray(last)
        return [line for line in whole if line.strip()]


class Receiver:
    """Makes messages of what the other end sends, for as long as it reads what is sent to it."""

    def __init__(self, peer: socket.socket, incoming: Incoming, answers: Answers, sender: "Sender") -> None:
        self._peer = peer
        self._incoming = incoming
        self._answers = answers
        self._sender = sender

    async def run(self) -> None:
        """Receive until the other end has no more to say. Then, or when this is cancelled, the connection ends."""
        try:
            async with self._incoming, self._answers:
                await self._receive()
        except (OSError, anyio.BrokenResourceError) as error:
            logger.debug("a connection broke: %r", error)
        finally:
            self._sender.finish()

    async def _receive(self) -> None:
        loop, lines = asyncio.get_running_loop(), Lines()
        while piece := await loop.sock_recv(self._peer, PIECE):
            try:
                whole = lines.feed(piece)
            except LineTooLong:
                logger.warning("a connection is closed: it sent a line of more than %d bytes", LONGEST_LINE)
                # First, since it may not read this either.
                self._sender.finish()
                await self._refuse(INVALID_REQUEST, f"a message has {LONGEST_LINE} bytes at most")
                return
            for line in whole:
                await self._take(line)
                await self._sender.room()
            # There may be more at once, again and again.
            await asyncio.sleep(0)

    async def _take(self, line: bytes | bytearray) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            if error.errors(include_input=False, include_url=False)[0]["type"] == "json_invalid":
                await self._refuse(PARSE_ERROR, "this is not JSON")
            else:
                await self._refuse(INVALID_REQUEST, "this is no message of JSON-RPC")
        else:
            await self._incoming.send(SessionMessage(message))

    async def _refuse(self, code: int, message: str) -> None:
        await self._answers.send(SessionMessage(refusal(None, code, message)))


class Sender:
    """Makes lines of what the server sends."""

    def __init__(self, peer: socket.socket, outgoing: Outgoing) -> None:
        self._peer = peer
        self._outgoing = outgoing
        # Last messages are sent though all else is cancelled: the SDK answers what it gives up.
        self._scope = anyio.CancelScope(shield=True)
        self._sent = asyncio.Event()

    async def run(self, conversation: anyio.CancelScope) -> None:
        """Send until there is no more to send, or nobody to send it to. That ends the conversation."""
        loop = asyncio.get_running_loop()
        with self._scope:
            try:
                async with self._outgoing:
                    async for message in self._outgoing:
                        await loop.sock_sendall(self._peer, line_of(message.message))
                        self._sent.set()
                        self._sent.clear()
            except OSError as error:
                logger.debug("a connection broke: %r", error)
        conversation.cancel()

    async def room(self) -> None:
        """Wait while the other end does not read, so that what it is to be told does not pile up."""
        while self._outgoing.statistics().tasks_waiting_send > MOST_UNREAD:
            await self._sent.wait()

    def finish(self) -> None:
        """The connection ends: what is still to be sent has a moment."""
        self._scope.deadline = anyio.current_time() + PARTING


async def converse(peer: socket.socket, server: Server[Any], state: object) -> None:
    """Serve who is at the other end, until one of the two ends it."""
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    answers = write.clone()
    sender = Sender(peer, outgoing)
    receiver = Receiver(peer, incoming, answers, sender)
    with incoming, read, write, answers, outgoing:
        async with anyio.create_task_group() as group:
            group.start_soon(sender.run, group.cancel_scope)
            group.start_soon(receiver.run)
            await serve_dual_era_loop(server, read, write, lifespan_state=state)
            group.cancel_scope.cancel()


def refusal(request_id: RequestId | None, code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))


def line_of(message: JSONRPCMessage) -> bytes:
    """A message as it is sent. Of one that can't be, its caller is told, and the connection goes on."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        # Half a character, mostly: as in the name of a file that is not UTF-8.
        logger.exception("a message could not be sent")
        if not isinstance(message, JSONRPCResponse):
            return b""
        return line_of(refusal(message.id, INTERNAL_ERROR, "the answer has characters that can't be sent"))
