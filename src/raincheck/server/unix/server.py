"""Serve on a Unix socket: many connections, and one lifespan for all of them."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from os import PathLike
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.lowlevel import Server
from mcp_types import INTERNAL_ERROR

from raincheck._async import run_to_completion
from raincheck.engine.process_signals import stop_signals
from raincheck.server.unix.bind import SocketLock, peer_user
from raincheck.server.unix.connection import MessageConnection, encode_message, error_response
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

MAX_CONNECTIONS = 100
"""Connections at one time."""

RETRY_DELAY = 1.0
"""Seconds until the next attempt, when the system has no resources for a connection."""


class UnixListener:
    """Serves an MCP server at a path."""

    def __init__(self, server: Server[Any], path: str | PathLike[str]) -> None:
        self._server = server
        self._lock = SocketLock(path)
        self._connections: set[socket.socket] = set()
        self._up = asyncio.Event()
        self._accept_scope = anyio.CancelScope()
        """Accepts connections until it is cancelled."""

    async def serve(self, status: TaskStatus[None]) -> None:
        """Serve until this is cancelled. The server then stops in order.

        Raises:
            ConfigurationError: the server can't serve there.
        """
        # In a separate background task, which only this code cancels: the server's lifespan exits as on other
        # transports.
        server_task = asyncio.ensure_future(self._run())
        server_task.add_done_callback(lambda _: self._up.set())
        try:
            await self._up.wait()
            if not server_task.done():
                status.started()
            await asyncio.shield(server_task)
        except asyncio.CancelledError:
            if self._up.is_set():
                self._accept_scope.cancel()
            else:
                server_task.cancel()
            await run_to_completion(server_task)
            raise

    async def _run(self) -> None:
        try:
            # Before anything starts. A client that connects now waits until the server has started.
            listening = await run_to_completion(asyncio.to_thread(self._lock.acquire))
            async with self._server.lifespan(self._server) as state, anyio.create_task_group() as group:
                logger.info("serving at %s", self._lock.path)
                self._up.set()
                with self._accept_scope:
                    await self._accept(listening, state, group)
                group.cancel_scope.cancel()
                # At once: no more clients are accepted, and the next server can start while this one stops.
                await run_to_completion(asyncio.to_thread(self._lock.release))
        finally:
            await run_to_completion(asyncio.to_thread(self._lock.release))
            for connection in self._connections:
                connection.close()

    async def _accept(self, listening: socket.socket, state: object, group: TaskGroup) -> None:
        while True:
            await anyio.wait_readable(listening)
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                logger.warning("could not accept a connection at %s: %s", self._lock.path, error)
                await asyncio.sleep(RETRY_DELAY)
                continue
            # There is no await in between: a cancellation would leave the connection open, and lose it.
            connection.setblocking(False)
            if self._may_connect(connection):
                self._connections.add(connection)
                group.start_soon(self._serve, connection, state)
            else:
                connection.close()

    def _may_connect(self, connection: socket.socket) -> bool:
        path = self._lock.path
        try:
            user = peer_user(connection)
        except OSError:
            return False
        if user != os.geteuid():
            logger.warning(
                "refused a connection at %s: it belongs to user %d, and this server to another user", path, user
            )
            return False
        if len(self._connections) >= MAX_CONNECTIONS:
            logger.warning("refused a connection at %s: there are already %d", path, MAX_CONNECTIONS)
            with suppress(OSError):
                connection.send(
                    encode_message(error_response(None, INTERNAL_ERROR, "the server has too many connections"))
                )
            return False
        return True

    async def _serve(self, connection: socket.socket, state: object) -> None:
        try:
            await MessageConnection(connection).serve(self._server, state)
        except Exception:
            logger.exception("a connection at %s failed", self._lock.path)
        finally:
            self._connections.discard(connection)
            connection.close()


async def serve_until_signal(serving: Coroutine[Any, Any, None], on_repeat: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order. A second signal skips the grace period."""
    with stop_signals(on_repeat) as stop_requested:
        server_task, stop_task = asyncio.ensure_future(serving), asyncio.ensure_future(stop_requested.wait())
        await asyncio.wait([server_task, stop_task], return_when=asyncio.FIRST_COMPLETED)
        server_task.cancel()
        stop_task.cancel()
        await asyncio.wait([server_task, stop_task])
    with suppress(asyncio.CancelledError):
        server_task.result()
