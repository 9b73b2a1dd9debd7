"""Helpers for asyncio: shielded waits, background tasks, retry loops and timeouts on a clock.

`shield` and `run_to_completion` keep work running when its waiter is cancelled. `repeat` is the loop that the engine's
background tasks share: errors do not end it. `timeout_after` bounds a block on a clock that may be a test clock.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio

from raincheck.clock import Clock
from raincheck.errors import StoreError
from raincheck.tracebacks import text_logger

T = TypeVar("T")

_background_tasks: set[asyncio.Task[Any]] = set()
"""Background tasks that have not ended. An event loop holds its tasks only weakly, and does not keep them alive."""


async def shield(future: asyncio.Future[T]) -> T:
    """Wait for the future; cancelling the wait does not cancel it. `asyncio.shield`, at a third of its cost."""
    if not future.done():
        waiter = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: None if waiter.done() else waiter.set_result(None))
        await waiter
    return future.result()


def spawn_background(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run the coroutine as a background task, even if no caller awaits its result."""
    task = asyncio.create_task(coroutine)
    _background_tasks.add(task)
    task.add_done_callback(_on_done)
    return task


def _on_done(task: asyncio.Task[Any]) -> None:
    _background_tasks.discard(task)
    if not task.cancelled():
        # Mark the exception as retrieved, so that asyncio does not report it as never retrieved.
        task.exception()


async def run_to_completion(awaitable: Awaitable[T]) -> T:
    """Await to completion, however often the waiter is cancelled meanwhile.

    Raises CancelledError at the end if the waiter was cancelled, even if the work has failed.
    """
    task = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    # An anyio scope would cancel again in every iteration of the loop.
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


logger = text_logger("raincheck.engine")
"""`repeat` logs for the loops of the engine, whose logger the docs promise."""

RETRY_DELAY = 1.0
"""Seconds to wait before the next round."""


async def repeat(
    name: str, action: Callable[[], Awaitable[None]], clock: Clock, *, stop_when: Callable[[], bool] = lambda: False
) -> None:
    """Run the action in a loop. An error is logged and does not end the loop: the store may soon be available again."""
    while not stop_when():
        try:
            await action()
        except StoreError as error:
            logger.warning("%s failed, will retry: %s", name, error)
            await clock.sleep(RETRY_DELAY)
        except Exception:
            logger.exception("%s failed with an unexpected error, will retry", name)
            await clock.sleep(RETRY_DELAY)


async def wait_first(*events: Awaitable[object]) -> None:
    """Wait until one of the events completes, then cancel the rest."""
    tasks = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def is_running_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the calling code runs in this event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


@asynccontextmanager
async def timeout_after(clock: Clock, seconds: float | None) -> AsyncGenerator[asyncio.Timeout]:
    """Bound the block by this many seconds, or not at all for None.

    `expired()` of the scope distinguishes this TimeoutError from others.

    Raises:
        TimeoutError: the block takes longer.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:

        def end() -> None:
            # The block may just have ended by itself.
            with suppress(RuntimeError):
                scope.reschedule(loop.time())

        cancel_timer = (lambda: None) if seconds is None else clock.call_later(seconds, end)
        try:
            yield scope
        finally:
            cancel_timer()
