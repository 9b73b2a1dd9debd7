"""Threads of steps: bounded, known until they end, and given back their place whatever happens."""

import asyncio
import threading

import pytest

from raincheck.engine.execution.threads import MAX_STEP_THREADS, StepThreads

pytestmark = pytest.mark.anyio


async def test_a_thread_that_can_not_be_started_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = StepThreads()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(MAX_STEP_THREADS + 1):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await threads.call(lambda: None)
    assert await asyncio.wait_for(threads.call(lambda: "started"), 20) == "started"


async def test_a_thread_that_nobody_waits_for_any_more_is_known_until_it_ends() -> None:
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


async def test_an_error_in_a_thread_reaches_whoever_waits_for_it() -> None:
    def fail() -> None:
        raise ValueError("broke")

    threads = StepThreads()
    with pytest.raises(ValueError, match="broke"):
        await threads.call(fail)
    with pytest.raises(RuntimeError, match="it raised StopIteration"):
        await threads.call(lambda: next(iter(())))
