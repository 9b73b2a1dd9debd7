"""Detect disconnected callers, and cancel tasks whose caller disconnected before it received a task id.

On a stream such as stdio, a disconnect ends the requests of the caller. Over HTTP before 2026-07-28 it does not: a
request continues when its connection breaks, because the caller may reconnect for the answer where the server stores
missed messages.

A caller that disconnects before it can find its task again will never request the result, so the task is cancelled.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, TypeVar, cast

from mcp.shared.exceptions import MCPError
from starlette.requests import Request

from raincheck._async import retry_while_unavailable, run_to_completion, shield
from raincheck.clock import Clock
from raincheck.core.records import Task, TaskId
from raincheck.engine import Engine
from raincheck.errors import RaincheckError
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext, connection_of
from raincheck.wire import errors

T = TypeVar("T")

POLL_INTERVAL = 2.0
"""Seconds between two polls. The server is not notified of a broken connection, and there may be thousands."""

RECONNECT_TIMEOUT = 60.0
"""Seconds in which a disconnected caller may reconnect for missed messages, where the server stores them."""


class CallerDisconnected(MCPError):
    """The caller disconnected, and no caller can come back for the answer."""

    def __init__(self) -> None:
        super().__init__(errors.CANCELLED, "the caller disconnected before the answer")


async def is_disconnected(ctx: AnyContext) -> bool:
    """Return whether no caller can receive the answer to this request any more."""
    return not _can_resume_stream(ctx) and await _is_broken(ctx)


async def wait_until_disconnected(ctx: AnyContext, clock: Clock, *, reconnect_timeout: float | None = None) -> None:
    """Return when no caller can receive the answer any more, or did not reconnect for it within the timeout."""
    if _open_request(ctx) is None:
        # The end of the connection cancels this request.
        await asyncio.Event().wait()
    while not await _is_broken(ctx):
        await clock.sleep(POLL_INTERVAL)
    if _can_resume_stream(ctx):
        await (asyncio.Event().wait() if reconnect_timeout is None else clock.sleep(reconnect_timeout))


async def _is_broken(ctx: AnyContext) -> bool:
    request = _open_request(ctx)
    return request is not None and await request.is_disconnected()


def _can_resume_stream(ctx: AnyContext) -> bool:
    """Return whether messages for a request are stored for a caller that reconnects."""
    return ctx.close_sse_stream is not None


def _open_request(ctx: AnyContext) -> "Request[Any] | None":
    """Return the HTTP request that stays open until it is answered.

    Requests with a session do, and so do requests that stand alone. On other transports, an HTTP request that brings a
    message ends when the message has arrived.
    """
    request: Any = ctx.request
    connection = connection_of(ctx)
    stays_open = connection.session_id is not None or not connection.has_standalone_channel
    return cast("Request[Any]", request) if isinstance(request, Request) and stays_open else None


async def run_while_connected(ctx: AnyContext, clock: Clock, work: Coroutine[Any, Any, T]) -> T:
    """Run work for a caller for as long as it is connected.

    Raises:
        CallerDisconnected: the caller disconnected first.
    """
    work_task = asyncio.ensure_future(work)
    disconnect_task = asyncio.ensure_future(wait_until_disconnected(ctx, clock))
    try:
        await asyncio.wait([work_task, disconnect_task], return_when=asyncio.FIRST_COMPLETED)
        if work_task.done():
            return work_task.result()
        raise CallerDisconnected
    finally:
        work_task.cancel()
        disconnect_task.cancel()
        await run_to_completion(asyncio.wait([work_task, disconnect_task]))


logger = logging.getLogger(__name__)

MAX_CANCEL_TRIES = 10


class AbandonedCalls:
    """Tracks which callers wait for which task, and cancels tasks that no caller waits for any more.

    A task with an idempotency key is never cancelled this way: the same call, repeated, finds it.
    """

    def __init__(self, runtime: ServerRuntime) -> None:
        self._runtime = runtime
        self._waiters: Counter[TaskId] = Counter()

    async def wait_for_creation(self, creation: asyncio.Future[Task]) -> Task:
        """Wait for a new task. If the caller disconnects meanwhile, cancel the task as soon as it exists."""
        engine = self._runtime.engine
        try:
            return await shield(creation)
        except asyncio.CancelledError:
            self._runtime.finish_before_stop(creation)
            creation.add_done_callback(partial(self._cancel_created, engine))
            raise

    async def wait_or_cancel(self, task: Task, waiting: Awaitable[T]) -> T:
        """Wait on behalf of a caller. Cancel the task when the last of its waiting callers disconnects."""
        engine = self._runtime.engine
        self._waiters[task.id] += 1
        is_abandoned = False
        try:
            return await waiting
        except (asyncio.CancelledError, CallerDisconnected):
            is_abandoned = True
            raise
        finally:
            self._waiters[task.id] -= 1
            if not self._waiters[task.id]:
                del self._waiters[task.id]
                if is_abandoned:
                    cancel_abandoned(self._runtime, task, engine)

    def _cancel_created(self, engine: Engine, creation: "asyncio.Future[Task]") -> None:
        if not creation.cancelled() and creation.exception() is None:
            cancel_abandoned(self._runtime, creation.result(), engine)


def cancel_abandoned(runtime: ServerRuntime, task: Task, engine: Engine) -> None:
    """Cancel a task that its caller can't find again."""
    if task.idempotency_key is None:
        # In a separate background task: the request has been cancelled, and can't wait for this.
        runtime.finish_before_stop(asyncio.ensure_future(_cancel(task, engine)))


async def _cancel(task: Task, engine: Engine) -> None:
    try:
        await retry_while_unavailable(
            lambda: engine.cancel(task.id, owner=task.owner, reason="its caller disconnected"),
            max_tries=MAX_CANCEL_TRIES,
        )
    except RaincheckError as error:
        # Most likely, it has already ended.
        logger.debug("abandoned task %s was not cancelled: %s", task.log_id, error)
