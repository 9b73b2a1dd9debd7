"""Timers of the clock: they run in the event loop that sets them."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from contextvars import Context, ContextVar

import pytest

from raincheck.clock import SystemClock


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.mark.anyio
async def test_timers_expire_in_the_order_of_their_times(clock: SystemClock) -> None:
    calls, ended = list[str](), asyncio.Event()
    clock.call_later(0.02, ended.set)
    for name, seconds in (("late", 0.01), ("soon", 0.0), ("between", 0.005)):
        clock.call_later(seconds, lambda name=name: calls.append(name))
    await asyncio.wait_for(ended.wait(), 10)
    assert calls == ["soon", "between", "late"]


@pytest.mark.anyio
async def test_a_cancelled_timer_does_not_expire(clock: SystemClock) -> None:
    calls, ended = list[str](), asyncio.Event()
    cancel = clock.call_later(0.0, lambda: calls.append("cancelled"))
    clock.call_later(0.0, ended.set)
    cancel()
    cancel()
    await asyncio.wait_for(ended.wait(), 10)
    assert calls == []


@pytest.mark.anyio
async def test_a_timer_may_set_another_one(clock: SystemClock) -> None:
    ended = asyncio.Event()
    clock.call_later(0.0, lambda: clock.call_later(0.0, ended.set))
    await asyncio.wait_for(ended.wait(), 10)


@pytest.mark.anyio
async def test_a_timer_runs_in_the_context_that_set_it(clock: SystemClock) -> None:
    user: ContextVar[str] = ContextVar("user")
    calls, ended = list[str](), asyncio.Event()
    for name in ("alice", "bob"):
        user.set(name)
        clock.call_later(0.0, lambda: calls.append(user.get()))
    clock.call_later(0.01, ended.set)
    await asyncio.wait_for(ended.wait(), 10)
    assert calls == ["alice", "bob"]


@pytest.mark.anyio
async def test_a_cancelled_timer_holds_no_references(clock: SystemClock) -> None:
    class Request:
        pass

    def set_and_cancel() -> "weakref.ref[Request]":
        request = Request()
        clock.call_later(3_600.0, lambda: request)()
        ContextVar[Request]("request").set(request)
        clock.call_later(3_600.0, lambda: None)()
        return weakref.ref(request)

    request = Context().run(set_and_cancel)
    gc.collect()
    assert request() is None


def test_a_clock_sets_timers_in_the_running_loop(clock: SystemClock) -> None:
    async def run_timers() -> str:
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        clock.call_later(3_600.0, lambda: result.set_result("much too late"))
        clock.call_later(0.0, lambda: result.set_result("now"))
        return await result

    assert [asyncio.run(run_timers()) for _ in range(2)] == ["now", "now"]


def test_timers_of_one_thread_expire_while_another_runs_its_own(clock: SystemClock) -> None:
    is_running, may_end = threading.Event(), threading.Event()

    def run_for_long() -> None:
        is_running.set()
        assert may_end.wait(10)

    async def run_timers(*callbacks: Callable[[], object]) -> None:
        done = asyncio.Event()
        for callback in (*callbacks, done.set):
            clock.call_later(0.0, callback)
        async with asyncio.timeout(10):
            await done.wait()

    other = threading.Thread(target=lambda: asyncio.run(run_timers(run_for_long)))
    other.start()
    try:
        assert is_running.wait(10)
        asyncio.run(run_timers())
    finally:
        may_end.set()
        other.join()
