"""The timer heap: one timer of the event loop serves all timers."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import dataclass
from functools import partial
from typing import cast

import pytest

from raincheck.clock import COMPACTION_THRESHOLD, SystemClock, TimerHeap


class FakeLoop:
    """The timer methods of an event loop, with a time that advances on demand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers_set = 0
        self.errors: list[str] = []
        self._timers: list[FakeHandle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None], *, context: Context) -> "FakeHandle":
        self.timers_set += 1
        handle = FakeHandle(when, partial(context.run, call))
        self._timers.append(handle)
        return handle

    def advance(self, seconds: float, iterations: int = 1_000) -> None:
        """Advance the time, and run the timers that are due, one per iteration."""
        self.now += seconds
        for _ in range(iterations):
            due = [timer for timer in self._timers if not timer.is_cancelled and timer.when <= self.now]
            if not due:
                return
            self._timers.remove(due[0])
            try:
                due[0].call()
            except RuntimeError as error:
                self.errors.append(str(error))


@dataclass
class FakeHandle:
    when: float
    call: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def timers(loop: FakeLoop) -> TimerHeap:
    return TimerHeap(cast("asyncio.AbstractEventLoop", loop))


def test_timers_expire_in_the_order_of_their_times_and_not_early(loop: FakeLoop, timers: TimerHeap) -> None:
    calls: list[str] = []
    for name, seconds in (("late", 3.0), ("soon", 1.0), ("between", 2.0), ("soon too", 1.0)):
        timers.call_later(seconds, lambda name=name: calls.append(name))
    loop.advance(0.9)
    assert calls == []
    loop.advance(0.1)
    assert calls == ["soon", "soon too"]
    loop.advance(5.0)
    assert calls == ["soon", "soon too", "between", "late"]


def test_a_cancelled_timer_does_not_expire(loop: FakeLoop, timers: TimerHeap) -> None:
    calls: list[str] = []
    first = timers.call_later(1.0, lambda: calls.append("first"))
    timers.call_later(2.0, lambda: calls.append("second"))
    first.cancel()
    first.cancel()
    loop.advance(1.5)
    assert calls == []
    loop.advance(0.5)
    assert calls == ["second"]
    assert len(timers) == 0


def test_a_timer_may_cancel_another_one_of_the_same_time(loop: FakeLoop, timers: TimerHeap) -> None:
    calls: list[str] = []
    timers.call_later(1.0, lambda: other.cancel())
    other = timers.call_later(1.0, lambda: calls.append("other"))
    loop.advance(1.0)
    assert calls == []


def test_a_timer_may_set_another_one(loop: FakeLoop, timers: TimerHeap) -> None:
    calls: list[str] = []
    timers.call_later(1.0, lambda: timers.call_later(1.0, lambda: calls.append("again")))
    loop.advance(1.0)
    loop.advance(1.0)
    assert calls == ["again"]


def test_a_failing_timer_does_not_stop_the_rest(loop: FakeLoop, timers: TimerHeap) -> None:
    calls: list[str] = []

    def fail() -> None:
        raise RuntimeError("no")

    timers.call_later(1.0, fail)
    timers.call_later(1.0, lambda: calls.append("same time"))
    timers.call_later(2.0, lambda: calls.append("later"))
    loop.advance(1.0)
    loop.advance(1.0)
    assert (calls, loop.errors) == (["same time", "later"], ["no"])


def test_many_cancelled_timers_need_one_timer_of_the_loop(loop: FakeLoop, timers: TimerHeap) -> None:
    for _ in range(100):
        timers.call_later(2.0, lambda: None).cancel()
        loop.advance(0.001)
    assert loop.timers_set == 1


def test_cancelled_timers_are_removed_from_a_large_heap(timers: TimerHeap) -> None:
    timers.call_later(3_600.0, lambda: None)
    for _ in range(10 * COMPACTION_THRESHOLD):
        timers.call_later(3_600.0, lambda: None).cancel()
    assert len(timers) <= COMPACTION_THRESHOLD + 1


def test_a_timer_runs_in_the_context_that_set_it(loop: FakeLoop, timers: TimerHeap) -> None:
    user: ContextVar[str] = ContextVar("user")
    calls: list[str] = []
    for name in ("alice", "bob"):
        user.set(name)
        timers.call_later(1.0, lambda: calls.append(user.get()))
    loop.advance(1.0)
    assert calls == ["alice", "bob"]


def test_a_cancelled_timer_holds_no_references(timers: TimerHeap) -> None:
    class Request:
        pass

    def set_and_cancel() -> "weakref.ref[Request]":
        request = Request()
        timers.call_later(3_600.0, lambda: request).cancel()
        ContextVar[Request]("request").set(request)
        timers.call_later(3_600.0, lambda: None).cancel()
        return weakref.ref(request)

    request = Context().run(set_and_cancel)
    gc.collect()
    assert request() is None


def test_a_clock_sets_timers_in_the_running_loop() -> None:
    clock = SystemClock()

    async def run_timers() -> str:
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        clock.call_later(3_600.0, lambda: result.set_result("much too late"))
        clock.call_later(0.0, lambda: result.set_result("now"))
        return await result

    assert [asyncio.run(run_timers()) for _ in range(2)] == ["now", "now"]


def test_a_timer_that_sets_itself_again_lets_other_callbacks_run(loop: FakeLoop, timers: TimerHeap) -> None:
    calls: list[float] = []

    def repeat() -> None:
        calls.append(loop.now)
        if len(calls) < 100:
            timers.call_later(0.0, repeat)

    timers.call_later(1.0, repeat)
    loop.advance(1.0, iterations=3)
    assert len(calls) == 3


def test_timers_of_one_thread_expire_while_another_runs_its_own() -> None:
    is_running, may_end = threading.Event(), threading.Event()

    def run_for_long() -> None:
        is_running.set()
        assert may_end.wait(10)

    async def run_timers(*callbacks: Callable[[], object]) -> None:
        clock, done = SystemClock(), asyncio.Event()
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
