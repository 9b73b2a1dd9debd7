"""HTTP server whose connections are bounded and time out, so that the process keeps file descriptors in reserve."""

import asyncio
import errno
import logging
import resource
import socket
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import cast

import anyio
import uvicorn
from starlette.types import ASGIApp

from raincheck.server.http.connection import HttpConnection
from raincheck.server.sdk_compat import OUT_OF_RESOURCES

logger = logging.getLogger(__name__)

KEEP_ALIVE_TIMEOUT = 75
"""Seconds for which an idle connection stays open. Longer than clients and load balancers keep one (5 to 60 s by
default), so that none sends a request on a connection that the server is closing."""

SHUTDOWN_TIMEOUT = 2
"""Seconds for requests in progress when the server stops. A call that waits for its result may take hours."""

MAX_CONNECTIONS = 10_000
"""Upper bound, however many file descriptors are available."""

RESERVED_DESCRIPTORS = 256
"""File descriptors for everything but connections: the store, processes of tools, requests that tools make."""

MIN_IDLE_TIME = 1.0
"""Seconds before a connection without a request may be closed to free a slot: its request may be on the way."""

RETRY_DELAY = 0.1
"""Seconds until the next attempt to accept, when there is no slot for a connection."""

RECOVERY_TIME = 5.0
"""Seconds without a shortage until it counts as over."""


def max_connections() -> int:
    """Return the number of connections that the limit of open files allows (`ulimit -n`), after the reserve."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, limit - min(RESERVED_DESCRIPTORS, limit // 2))


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Return whether a record of uvicorn is not about requests that uvicorn cancels when it stops."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and not str(record.msg).startswith("Cancel %s running task")


class HttpServer(uvicorn.Server):
    """Serves an application on listening sockets until `handle_exit` is called.

    It accepts connections itself: asyncio would accept until no file descriptor is left for the store.
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpConnection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                timeout_keep_alive=KEEP_ALIVE_TIMEOUT,
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
            )
        )
        self.max_connections = max_connections()
        self._listening: list[socket.socket] = []
        self._shortage_at: float | None = None

    def capture_signals(self) -> AbstractContextManager[None]:  # pyright: ignore[reportIncompatibleMethodOverride] - as a decorator makes it
        """Leave signals to the caller. uvicorn would end the process before the tasks have stopped."""
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._listening = sockets or []
        await super().startup(sockets=[])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop serving. Cancelled requests are one line in the log, not a traceback for each."""
        log = logging.getLogger("uvicorn.error")
        log.addFilter(_is_no_cancellation)
        try:
            await super().shutdown(sockets)
            if cancelled := set(self.server_state.tasks):
                logger.info("requests cancelled because the server stops: %d", len(cancelled))
                await asyncio.wait(cancelled, timeout=SHUTDOWN_TIMEOUT)
        finally:
            log.removeFilter(_is_no_cancellation)

    async def main_loop(self) -> None:
        async with asyncio.TaskGroup() as group:
            accept_tasks = [group.create_task(self._accept_connections(listening)) for listening in self._listening]
            await super().main_loop()
            for accept_task in accept_tasks:
                accept_task.cancel()

    async def _accept_connections(self, listening: socket.socket) -> None:
        listening.listen(self.config.backlog)
        listening.setblocking(False)
        while True:
            with anyio.move_on_after(None if self._shortage_at is None else RECOVERY_TIME) as quiet:
                await anyio.wait_readable(listening)
            self._check_recovery()
            if quiet.cancelled_caught:
                continue
            try:
                await self._accept_connection(listening)
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    self._report_shortage(str(error.strerror))
                    self._close_idle_connections()
                else:
                    logger.debug("could not accept a connection: %s", error)
                await asyncio.sleep(RETRY_DELAY)

    async def _accept_connection(self, listening: socket.socket) -> None:
        """Accept a connection, unless the client has already disconnected.

        Raises:
            OSError: there is no slot, so the connection waits in the backlog of the socket, or the network failed.
        """
        if len(self.server_state.connections) >= self.max_connections:
            raise OSError(errno.EMFILE, f"limit of {self.max_connections} connections reached")
        with suppress(BlockingIOError, ConnectionAbortedError):
            connection, _ = listening.accept()
            connection.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(self._make_connection, connection)

    def _make_connection(self) -> HttpConnection:
        return HttpConnection(self.config, self.server_state, self.lifespan.state)

    def _close_idle_connections(self) -> None:
        """Close the connections that have been idle the longest, a few at once."""
        latest = asyncio.get_running_loop().time() - MIN_IDLE_TIME
        connections = cast("set[HttpConnection]", self.server_state.connections)
        idle = [connection for connection in connections if connection.is_idle_since(latest)]
        idle.sort(key=lambda connection: connection.waiting_since)
        for connection in idle[: 1 + self.max_connections // 10]:
            connection.transport.close()

    def _report_shortage(self, reason: str) -> None:
        if self._shortage_at is None:
            logger.warning("%s: closing idle connections; new ones wait until a slot is free", reason)
        self._shortage_at = asyncio.get_running_loop().time()

    def _check_recovery(self) -> None:
        if self._shortage_at is not None and asyncio.get_running_loop().time() >= self._shortage_at + RECOVERY_TIME:
            self._shortage_at = None
            logger.warning("new connections are accepted again without delay")
