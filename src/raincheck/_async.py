"""Helpers for asyncio: background tasks, retry loops, threads and timeouts on a clock.

`run_to_completion` keeps work running when its waiter is cancelled. `retry_while_unavailable` retries one operation on
a store, and `repeat` is the loop that the engine's background tasks share: errors do not end it. `timeout_after` bounds
a block on a clock that may be a test clock.
"""

import asyncio
import contextvars
import math
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio

from raincheck.clock import Clock
from raincheck.core.policies import backoff_seconds
from raincheck.errors import StoreError, StoreUnavailable
from raincheck.tracebacks import text_logger

T = TypeVar("T")

_background_tasks: set[asyncio.Task[Any]] = set()
"""Background tasks that have not ended. An event loop holds its tasks only weakly, and does not keep them alive."""


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


async def shield(future: "asyncio.Future[T]") -> T:
    """Wait for a future without cancelling it when the waiter is cancelled.

    For a future whose error is handled elsewhere: from Python 3.14, `asyncio.shield` logs an error that comes after the
    waiter was cancelled.
    """
    await asyncio.wait([future])
    return future.result()


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


async def retry_while_unavailable(
    action: Callable[[], Awaitable[T]],
    *,
    retry_on: type[StoreError] = StoreUnavailable,
    on_failure: Callable[[StoreError], object] | None = None,
    max_tries: float = math.inf,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Run an operation on a store, and retry it while the store is unavailable. Each wait is longer than the last.

    `on_failure` is called with the error of each failed try.

    Raises:
        StoreError: the last allowed try failed.
    """
    tries = 0
    while True:
        try:
            return await action()
        except retry_on as error:
            tries += 1
            if on_failure is not None:
                on_failure(error)
            if tries >= max_tries:
                raise
            await sleep(backoff_seconds(tries))


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


def start_in_thread(fn: Callable[[], T], *, name: str = "raincheck-body") -> asyncio.Future[T]:
    """Call the function in a new thread, with the caller's context variables. The future has its result or error.

    The thread does not keep the program from ending. Cancelling the future does not stop the thread. It is not from a
    pool: a function that never returns would occupy its slot there forever, and a few of them would block everything
    else that uses the pool. Here it costs its own thread and no more.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(fn)
        except BaseException as error:  # noqa: BLE001 - any error of the caller's function
            _call_in_loop(loop, _settle, future, None, error)
        else:
            _call_in_loop(loop, _settle, future, result, None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _call_in_loop(loop: asyncio.AbstractEventLoop, *args: object) -> None:
    try:
        loop.call_soon_threadsafe(*args)  # type: ignore[arg-type] # a callable and its arguments
    except RuntimeError:
        # The loop is closed: no code waits for the result.
        return


def _settle(future: "asyncio.Future[T]", result: T, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError(f"the function raised {error!r}"))
    else:
        future.set_exception(error)


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
