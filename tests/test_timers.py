"""One timer of the loop for all that is to be done later."""

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

from raincheck.clock import FEW, SystemClock, TimerHeap


class FakeLoop:
    """As much of an event loop as sets timers, with a time that goes when told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers_set = 0
        self.told: list[str] = []
        self._timers: list[FakeHandle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None], *, context: Context) -> "FakeHandle":
        self.timers_set += 1
        handle = FakeHandle(when, partial(context.run, call))
        self._timers.append(handle)
        return handle

    def advance(self, seconds: float, turns: int = 1_000) -> None:
        """Let time pass, and have rung what is due then, one in a turn."""
        self.now += seconds
        for _ in range(turns):
            due = [one for one in self._timers if not one.is_cancelled and one.when <= self.now]
            if not due:
                return
            self._timers.remove(due[0])
            try:
                due[0].call()
            except RuntimeError as error:
                self.told.append(str(error))


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


def test_alarms_ring_in_the_order_of_their_moments_and_not_before(loop: FakeLoop, timers: TimerHeap) -> None:
    rung: list[str] = []
    for name, seconds in (("late", 3.0), ("soon", 1.0), ("between", 2.0), ("soon too", 1.0)):
        timers.call_later(seconds, lambda name=name: rung.append(name))
    loop.advance(0.9)
    assert rung == []
    loop.advance(0.1)
    assert rung == ["soon", "soon too"]
    loop.advance(5.0)
    assert rung == ["soon", "soon too", "between", "late"]


def test_what_is_called_off_does_not_ring(loop: FakeLoop, timers: TimerHeap) -> None:
    rung: list[str] = []
    first = timers.call_later(1.0, lambda: rung.append("first"))
    timers.call_later(2.0, lambda: rung.append("second"))
    first.cancel()
    first.cancel()
    loop.advance(1.5)
    assert rung == []
    loop.advance(0.5)
    assert rung == ["second"]
    assert len(timers) == 0


def test_one_alarm_may_call_off_another_of_the_same_moment(loop: FakeLoop, timers: TimerHeap) -> None:
    rung: list[str] = []
    timers.call_later(1.0, lambda: other.cancel())
    other = timers.call_later(1.0, lambda: rung.append("other"))
    loop.advance(1.0)
    assert rung == []


def test_an_alarm_may_set_another(loop: FakeLoop, timers: TimerHeap) -> None:
    rung: list[str] = []
    timers.call_later(1.0, lambda: timers.call_later(1.0, lambda: rung.append("again")))
    loop.advance(1.0)
    loop.advance(1.0)
    assert rung == ["again"]


def test_an_alarm_that_fails_does_not_keep_the_others_from_ringing(loop: FakeLoop, timers: TimerHeap) -> None:
    rung: list[str] = []

    def fail() -> None:
        raise RuntimeError("no")

    timers.call_later(1.0, fail)
    timers.call_later(1.0, lambda: rung.append("same moment"))
    timers.call_later(2.0, lambda: rung.append("later"))
    loop.advance(1.0)
    loop.advance(1.0)
    assert (rung, loop.told) == (["same moment", "later"], ["no"])


def test_many_that_are_called_off_take_one_timer_of_the_loop(loop: FakeLoop, timers: TimerHeap) -> None:
    for _ in range(100):
        timers.call_later(2.0, lambda: None).cancel()
        loop.advance(0.001)
    assert loop.timers_set == 1


def test_what_was_called_off_is_forgotten_before_it_is_too_much(timers: TimerHeap) -> None:
    timers.call_later(3_600.0, lambda: None)
    for _ in range(10 * FEW):
        timers.call_later(3_600.0, lambda: None).cancel()
    assert len(timers) <= FEW + 1


def test_an_alarm_rings_in_the_context_that_it_was_set_in(loop: FakeLoop, timers: TimerHeap) -> None:
    user: ContextVar[str] = ContextVar("user")
    rung: list[str] = []
    for name in ("alice", "bob"):
        user.set(name)
        timers.call_later(1.0, lambda: rung.append(user.get()))
    loop.advance(1.0)
    assert rung == ["alice", "bob"]


def test_nothing_of_who_called_it_off_is_held_on_to(timers: TimerHeap) -> None:
    class Request:
        pass

    def call_off() -> "weakref.ref[Request]":
        request = Request()
        timers.call_later(3_600.0, lambda: request).cancel()
        ContextVar[Request]("request").set(request)
        timers.call_later(3_600.0, lambda: None).cancel()
        return weakref.ref(request)

    left = Context().run(call_off)
    gc.collect()
    assert left() is None


def test_a_clock_rings_in_whatever_loop_it_is_asked_in() -> None:
    clock = SystemClock()

    async def ring() -> str:
        rung: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        clock.call_later(3_600.0, lambda: rung.set_result("much too late"))
        clock.call_later(0.0, lambda: rung.set_result("now"))
        return await rung

    assert [asyncio.run(ring()) for _ in range(2)] == ["now", "now"]


def test_an_alarm_that_sets_itself_again_leaves_others_their_turn(loop: FakeLoop, timers: TimerHeap) -> None:
    rung: list[float] = []

    def again() -> None:
        rung.append(loop.now)
        if len(rung) < 100:
            timers.call_later(0.0, again)

    timers.call_later(1.0, again)
    loop.advance(1.0, turns=3)
    assert len(rung) == 3


def test_alarms_of_one_thread_ring_while_another_rings_its_own() -> None:
    is_ringing, may_end = threading.Event(), threading.Event()

    def ring_for_long() -> None:
        is_ringing.set()
        assert may_end.wait(10)

    async def ring(*calls: Callable[[], object]) -> None:
        clock, done = SystemClock(), asyncio.Event()
        for call in (*calls, done.set):
            clock.call_later(0.0, call)
        async with asyncio.timeout(10):
            await done.wait()

    other = threading.Thread(target=lambda: asyncio.run(ring(ring_for_long)))
    other.start()
    try:
        assert is_ringing.wait(10)
        asyncio.run(ring())
    finally:
        may_end.set()
        other.join()
