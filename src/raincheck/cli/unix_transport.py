"""A connection to a server on a Unix socket, for the SDK's client: a message a line, as on stdio."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

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
