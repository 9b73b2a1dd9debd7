"""Whether a caller still waits for the answer to its request.

On a stream such as stdio, a caller that leaves takes its requests with it. Over HTTP before 2026 it does not: a request
goes on when its connection breaks, since the caller may come back for the answer where the server keeps what it missed.

Callers that leave before they have a way back to their task: its work is stopped, since nobody will ask for it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, TypeVar, cast

from mcp.shared.exceptions import MCPError
from starlette.requests import Request

from raincheck._async import see_through, unhurt
from raincheck.clock import Clock
from raincheck.core.policies import pause_after
from raincheck.core.records import Task, TaskId
from raincheck.engine import Engine
from raincheck.errors import RaincheckError, StoreUnavailable
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext, connection_of
from raincheck.wire import errors

T = TypeVar("T")

LOOK_EVERY = 2.0
"""Seconds between two looks. Nobody tells us that a connection is gone, and there may be thousands."""

MAY_RETURN = 60.0
"""Seconds in which a caller whose connection broke may come back for what it missed, where that is kept for it."""


class CallerGone(MCPError):
    """Nobody waits for the answer any more, nor can anybody come back for it."""

    def __init__(self) -> None:
        super().__init__(errors.CANCELLED, "nobody waits for this any more")


async def is_gone(ctx: AnyContext) -> bool:
    """Whether nobody can get the answer to this request any more."""
    return not _is_kept(ctx) and await _is_broken(ctx)


async def until_gone(ctx: AnyContext, clock: Clock) -> None:
    """Return when nobody can get the answer any more."""
    await _until_broken(ctx, clock)
    if _is_kept(ctx):
        await asyncio.Event().wait()


async def until_away(ctx: AnyContext, clock: Clock) -> None:
    """Return when the caller is gone, or has stayed away for so long that others need not wait for it."""
    await _until_broken(ctx, clock)
    if _is_kept(ctx):
        await clock.sleep(MAY_RETURN)


async def _until_broken(ctx: AnyContext, clock: Clock) -> None:
    if _open_request(ctx) is None:
        # It takes us with it.
        await asyncio.Event().wait()
    while not await _is_broken(ctx):
        await clock.sleep(LOOK_EVERY)


async def _is_broken(ctx: AnyContext) -> bool:
    request = _open_request(ctx)
    return request is not None and await request.is_disconnected()


def _is_kept(ctx: AnyContext) -> bool:
    """Whether what is sent for a request is kept, for a caller that comes back."""
    return ctx.close_sse_stream is not None


def _open_request(ctx: AnyContext) -> "Request[Any] | None":
    """The HTTP request that stays open until it is answered.

    Those with a session do, and those that stand alone. Elsewhere, one that brings a message is over when it is there.
    """
    request: Any = ctx.request
    connection = connection_of(ctx)
    stays_open = connection.session_id is not None or not connection.has_standalone_channel
    return cast("Request[Any]", request) if isinstance(request, Request) and stays_open else None


async def while_there(ctx: AnyContext, clock: Clock, work: Coroutine[Any, Any, T]) -> T:
    """Do something for a caller, for as long as it is there.

    Raises:
        CallerGone: it has left.
    """
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(until_gone(ctx, clock))
    try:
        await asyncio.wait([doing, leaving], return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise CallerGone
    finally:
        doing.cancel()
        leaving.cancel()
        await see_through(asyncio.wait([doing, leaving]))


logger = logging.getLogger(__name__)

MOST_TRIES = 10


class Leaving:
    """Knows who waits for which task, and gives up those that nobody waits for any more.

    A task with an idempotency key is never given up: the same call, made again, finds it.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._waiting: Counter[TaskId] = Counter()

    async def create(self, creating: asyncio.Future[Task]) -> Task:
        """Wait for a new task. If the caller leaves meanwhile, it is given up as soon as it is there."""
        engine = self._running.engine
        try:
            return await unhurt(creating)
        except asyncio.CancelledError:
            self._running.hold(creating)
            creating.add_done_callback(partial(self._created_for_nobody, engine))
            raise

    async def while_wanted(self, task: Task, waiting: Awaitable[T]) -> T:
        """Wait, as a caller does for the answer to its call. The last of several that leaves gives the task up."""
        engine = self._running.engine
        self._waiting[task.id] += 1
        is_left = False
        try:
            return await waiting
        except (asyncio.CancelledError, CallerGone):
            is_left = True
            raise
        finally:
            self._waiting[task.id] -= 1
            if not self._waiting[task.id]:
                del self._waiting[task.id]
                if is_left:
                    give_up(self._running, task, engine)

    def _created_for_nobody(self, engine: Engine, job: "asyncio.Future[Task]") -> None:
        if not job.cancelled() and job.exception() is None:
            give_up(self._running, job.result(), engine)


def give_up(running: Running, task: Task, engine: Engine) -> None:
    """Stop the work of a task whose caller has no way back to it."""
    if task.idempotency_key is None:
        # In a job of its own: whoever waited has been cancelled, and can't wait for this either.
        running.hold(asyncio.ensure_future(_cancel(task, engine)))


async def _cancel(task: Task, engine: Engine) -> None:
    for tries in range(1, MOST_TRIES + 1):
        try:
            await engine.cancel(task.id, owner=task.owner, reason="its caller left")
        except StoreUnavailable:
            await asyncio.sleep(pause_after(tries))
        except RaincheckError as error:
            # It has ended first, most likely.
            logger.debug("task %s was not given up: %s", task.shown_id, error)
            return
        else:
            return
