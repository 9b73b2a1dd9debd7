"""Waiting for work that goes on, whoever waits for it.

What every loop of the engine has in common: it goes on, whatever happens.

Waiting no longer than one should, on a clock that may be a test's.

Work that is not to be given up half-way, though whoever waits for it is cancelled.

Event loops: waiting for whichever comes first, and telling where one is.
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

_going: set[asyncio.Task[Any]] = set()
"""Background tasks that have not ended. An event loop refers to its tasks weakly, and does not keep them alive."""


async def unhurt(future: asyncio.Future[T]) -> T:
    """Wait for it, without cancelling it if the waiting is. `asyncio.shield`, at a third of its cost."""
    if not future.done():
        woken = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: None if woken.done() else woken.set_result(None))
        await woken
    return future.result()


def set_going(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Have it done, whether or not anybody asks what came of it."""
    job = asyncio.create_task(work)
    _going.add(job)
    job.add_done_callback(_end)
    return job


def _end(job: asyncio.Task[Any]) -> None:
    _going.discard(job)
    if not job.cancelled():
        # Marks it as seen, so that it is not reported as never retrieved.
        job.exception()


async def see_through(work: Awaitable[T]) -> T:
    """Wait for something to its end, however often whoever waits is cancelled meanwhile.

    It is cancelled then, unless the work has failed: that is what is raised.
    """
    job = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    # Scopes of anyio would cancel again at every turn of the loop.
    with anyio.CancelScope(shield=True):
        while not job.done():
            try:
                await asyncio.shield(job)
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
    return job.result()


logger = text_logger(__name__)

AFTER_AN_ERROR = 1.0
"""Seconds to wait before the next round."""


async def repeat(
    what: str, do: Callable[[], Awaitable[None]], clock: Clock, *, until: Callable[[], bool] = lambda: False
) -> None:
    """Do it again and again. An error is logged, and does not end it: the store may be back in a moment."""
    while not until():
        try:
            await do()
        except StoreError as error:
            logger.warning("%s: will try again, since %s", what, error)
            await clock.sleep(AFTER_AN_ERROR)
        except Exception:
            logger.exception("%s: an unexpected error; will go on", what)
            await clock.sleep(AFTER_AN_ERROR)


async def first_of(*events: Awaitable[object]) -> None:
    """Wait until one of them is done. The others are given up."""
    jobs = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for job in jobs:
            job.cancel()


def runs_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is called in that event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


@asynccontextmanager
async def at_most(clock: Clock, seconds: float | None) -> AsyncGenerator[asyncio.Timeout]:
    """Let the block take so many seconds, or as many as it takes. `expired()` tells its TimeoutError from others.

    Raises:
        TimeoutError: it takes longer.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:

        def end() -> None:
            # It may just have come to its end by itself.
            with suppress(RuntimeError):
                scope.reschedule(loop.time())

        prevent = (lambda: None) if seconds is None else clock.call_later(seconds, end)
        try:
            yield scope
        finally:
            prevent()
