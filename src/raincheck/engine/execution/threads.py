"""Run plain functions beside the event loop, each in its own thread.

Not in a pool: a function that never returns would occupy its slot there forever, and a few of them would block
everything else that uses the pool. Here it costs its own thread and no more.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")

MAX_STEP_THREADS = 32
"""Maximum steps of one body that run in threads at once. The others wait."""


def start_in_thread(fn: Callable[[], T], *, name: str = "raincheck-body") -> asyncio.Future[T]:
    """Call the function in a new thread, with the caller's context variables. The future has its result or error.

    The thread does not keep the program from ending. Cancelling the future does not stop the thread.
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


class StepThreads:
    """The threads of one body's steps: limited in number, and tracked until they end."""

    def __init__(self) -> None:
        self.running: set[asyncio.Future[Any]] = set()

    @cached_property
    def _limit(self) -> asyncio.Semaphore:
        # Created on first use: most bodies need none.
        return asyncio.Semaphore(MAX_STEP_THREADS)

    async def call(self, fn: Callable[[], T]) -> T:
        """Call the function in a new thread, and wait for its result."""
        await self._limit.acquire()
        try:
            future = start_in_thread(fn, name="raincheck-step")
        except RuntimeError:
            # There are too many threads on this machine.
            self._limit.release()
            raise
        self.running.add(future)
        future.add_done_callback(self._end)
        # Shielded, since the thread continues even when its waiter is cancelled.
        return await asyncio.shield(future)

    def _end(self, future: "asyncio.Future[Any]") -> None:
        self.running.discard(future)
        self._limit.release()


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
