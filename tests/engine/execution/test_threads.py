"""Step threads are limited, tracked until they end, and always free their slot."""

import asyncio
import threading

import pytest

from raincheck.engine.execution.context import MAX_STEP_THREADS, StepThreads

pytestmark = pytest.mark.anyio


async def test_a_thread_that_can_not_be_started_frees_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = StepThreads()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(MAX_STEP_THREADS + 1):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await threads.call(lambda: None)
    assert await asyncio.wait_for(threads.call(lambda: "started"), 20) == "started"


async def test_an_abandoned_thread_is_tracked_until_it_ends() -> None:
    may_end = threading.Event()
    threads = StepThreads()
    waiting = asyncio.create_task(threads.call(lambda: may_end.wait(10)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (running,) = threads.running
    may_end.set()
    assert await running
    assert not threads.running


async def test_an_error_in_a_thread_reaches_its_waiter() -> None:
    def fail() -> None:
        raise ValueError("broke")

    threads = StepThreads()
    with pytest.raises(ValueError, match="broke"):
        await threads.call(fail)
    with pytest.raises(RuntimeError, match="the function raised StopIteration"):
        await threads.call(lambda: next(iter(())))
