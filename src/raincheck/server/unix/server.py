"""Serving on a Unix socket: any number of connections, and one lifespan for all of them."""

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

from raincheck._async import see_through
from raincheck.engine.signals import signals
from raincheck.server.unix.bind import Claim, user_of
from raincheck.server.unix.connection import converse, line_of, refusal
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

MOST_CONNECTIONS = 100
"""At one time."""

BREATH = 1.0
"""Seconds until it is tried again, where the system has no room for a connection."""


class UnixListener:
    """Serves a server at a path."""

    def __init__(self, server: Server[Any], path: str | PathLike[str]) -> None:
        self._server = server
        self._claim = Claim(path)
        self._connections: set[socket.socket] = set()
        self._up = asyncio.Event()
        self._door = anyio.CancelScope()
        """Open to newcomers until it is cancelled."""

    async def serve(self, status: TaskStatus[None]) -> None:
        """Serve until this is cancelled. What was started is then stopped in good order, and not cut off.

        Raises:
            ConfigurationError: nobody can be served there.
        """
        # In a job of its own, which only we cancel: the server's lifespan is left as on other transports.
        job = asyncio.ensure_future(self._run())
        job.add_done_callback(lambda _: self._up.set())
        try:
            await self._up.wait()
            if not job.done():
                status.started()
            await asyncio.shield(job)
        except asyncio.CancelledError:
            if self._up.is_set():
                self._door.cancel()
            else:
                job.cancel()
            await see_through(job)
            raise

    async def _run(self) -> None:
        try:
            # Before anything starts. Who connects by then waits until it has.
            listening = await see_through(asyncio.to_thread(self._claim.take))
            async with self._server.lifespan(self._server) as state, anyio.create_task_group() as group:
                logger.info("serving at %s", self._claim.path)
                self._up.set()
                with self._door:
                    await self._accept(listening, state, group)
                group.cancel_scope.cancel()
                # At once: nobody else comes, and the next server can start while this one stops.
                await see_through(asyncio.to_thread(self._claim.release))
        finally:
            await see_through(asyncio.to_thread(self._claim.release))
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
                logger.warning("a connection at %s can't be taken: %s", self._claim.path, error)
                await asyncio.sleep(BREATH)
                continue
            # Nothing is waited for in between: it would be lost, and open, if this were cancelled then.
            connection.setblocking(False)
            if self._is_welcome(connection):
                self._connections.add(connection)
                group.start_soon(self._serve, connection, state)
            else:
                connection.close()

    def _is_welcome(self, connection: socket.socket) -> bool:
        path = self._claim.path
        try:
            user = user_of(connection)
        except OSError:
            return False
        if user != os.geteuid():
            logger.warning(
                "a connection at %s is refused: it is of user %d, and this is a server of another", path, user
            )
            return False
        if len(self._connections) >= MOST_CONNECTIONS:
            logger.warning("a connection at %s is refused: there are %d already", path, MOST_CONNECTIONS)
            with suppress(OSError):
                connection.send(line_of(refusal(None, INTERNAL_ERROR, "the server has too many connections")))
            return False
        return True

    async def _serve(self, connection: socket.socket, state: object) -> None:
        try:
            await converse(connection, self._server, state)
        except Exception:
            logger.exception("a connection at %s broke down", self._claim.path)
        finally:
            self._connections.discard(connection)
            connection.close()


async def serve_until_signal(serving: Coroutine[Any, Any, None], hurry: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, then stop in good order. A second signal cuts the waiting short."""
    with signals(hurry) as told:
        jobs = [asyncio.ensure_future(serving), asyncio.ensure_future(told.wait())]
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        for job in jobs:
            job.cancel()
        await asyncio.wait(jobs)
    with suppress(asyncio.CancelledError):
        jobs[0].result()
