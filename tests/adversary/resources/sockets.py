"""Sockets of callers that send and read as they should not."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager, suppress

RECEIVE_BUFFER = 4_096
"""Bytes that the system takes for a caller that does not read: few, so that the server soon has to wait."""

CONNECT_TIMEOUT = 5.0


class HostileSocket:
    """A connection to the server, on which nothing happens by itself."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.setblocking(False)

    async def connect(self) -> bool:
        """Connect, unless the server has no room for it now."""
        return await self._try(asyncio.get_running_loop().sock_connect(self._socket, ("127.0.0.1", self._port)))

    async def send(self, data: bytes) -> bool:
        """Send as much as the server takes in time."""
        return await self._try(asyncio.get_running_loop().sock_sendall(self._socket, data))

    async def read(self, size: int) -> bytes | None:
        """Read at most so many bytes; None if the connection is closed or nothing arrives."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await asyncio.get_running_loop().sock_recv(self._socket, size) or None
        return None

    def end_sending(self) -> None:
        """Close one half of the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self, *, rudely: bool = False) -> None:
        """Close the connection; rudely with a reset."""
        if rudely:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    @staticmethod
    async def _try(action: Awaitable[None]) -> bool:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await action
                return True
        return False


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncGenerator[list[HostileSocket]]:
    """Open so many connections, and close those that were made at the end."""
    sockets = [HostileSocket(port) for _ in range(count)]
    try:
        made = await asyncio.gather(*(one.connect() for one in sockets))
        yield [one for one, is_made in zip(sockets, made, strict=True) if is_made]
    finally:
        for one in sockets:
            one.close()
