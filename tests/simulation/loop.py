"""An asyncio event loop with virtual time, whose callbacks run in an order that a seed determines.

Callbacks belong to lanes: each simulated process has one. A lane can be paused and can end at any of its callbacks;
what is left of it never runs, like the code of a killed process. When no callback is ready, time moves to the next
timer.
"""

import asyncio
import contextvars
import heapq
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

MAX_CALLBACKS = 400_000
"""Callbacks after which a run counts as endless."""


class Lane:
    """The callbacks of one simulated process, or of what stands beside the processes."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.ready: list[Callback] = []
        self.is_paused = False
        self.is_dead = False
        self.was_paused = False
        self.fuse: int | None = None
        """The number of callbacks that still run before this lane dies; None if it is not to die."""
        self.on_death: Callable[[], object] | None = None

    def die(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            if self.on_death is not None:
                self.on_death()


LANE: contextvars.ContextVar[Lane] = contextvars.ContextVar("lane")


class Callback(asyncio.TimerHandle):
    """A callback, due at some time."""

    lane: Lane

    def run(self) -> None:
        self._run()

    def cancel(self) -> None:
        # Not the base class's, which informs the loop.
        asyncio.Handle.cancel(self)


class SimulatedTask(asyncio.Task[Any]):
    """A background task whose place in a set is the same in every run."""

    serial = 0
    lane: Lane

    def __hash__(self) -> int:
        return self.serial


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The loop. With `in_order`, the callbacks of one lane run in the order in which they became ready.

    That is asyncio's order. Otherwise they run in any order. Those of different lanes always do, as those of different
    processes. Each callback takes `cost` seconds.
    """

    def __init__(self, rng: random.Random, *, in_order: bool, cost: float) -> None:
        self._draw = rng.random
        self._in_order = in_order
        self._cost = cost
        self._time = 0.0
        self._timers: list[tuple[float, int, Callback]] = []
        self._count = 0
        self._is_running = False
        self._tasks: list[SimulatedTask] = []
        self._max_tasks = 256
        self._current = self.base = Lane("world", 0)
        self._lanes = [self.base]
        self.errors: list[str] = []
        """Errors that no code handled."""
        self.callbacks = 0
        self.trace = 0
        """A hash of everything that has run."""

    def add_lane(self, name: str) -> Lane:
        lane = Lane(name, len(self._lanes))
        self._lanes.append(lane)
        return lane

    def record(self, value: int) -> None:
        """Add a number to the trace."""
        self.trace = hash((self.trace, value))

    # What asyncio calls.

    def time(self) -> float:
        return self._time

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = self._make(self._time, callback, args, context)
        handle.lane.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = self._make(when, callback, args, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        task = SimulatedTask(coro, loop=self, **options)
        task.serial = self._count = self._count + 1
        task.lane = (options.get("context") or contextvars.copy_context()).get(LANE, self._current)
        # Held until the end: a coroutine that is collected would run its cleanup.
        self._tasks.append(task)
        if len(self._tasks) > self._max_tasks:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._max_tasks = 2 * len(self._tasks) + 256
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Call the function in the loop. There are no threads."""
        del executor
        future: asyncio.Future[T] = asyncio.Future(loop=self)
        self.call_soon(_settle, future, func, args)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return False

    def close(self) -> None:
        return

    async def shutdown_asyncgens(self) -> None:
        return

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        task = context.get("future")
        if isinstance(task, SimulatedTask) and task.lane.is_dead:
            # No code was left to receive it.
            return
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    # Running.

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine, and whatever it starts, until it ends. What is left then is cancelled."""
        self._is_running = True
        asyncio.events._set_running_loop(self)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue] - every loop has to
        try:
            task = self.create_task(main)
            while not task.done():
                self._step()
            return task.result()
        finally:
            errors = list(self.errors)
            self._cancel_all()
            self.errors = errors
            asyncio.events._set_running_loop(None)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue] - likewise
            self._is_running = False

    def _step(self) -> None:
        runnable = [lane for lane in self._lanes if lane.ready and not lane.is_paused and not lane.is_dead]
        if not runnable:
            self._advance()
            return
        lane = runnable[0] if len(runnable) == 1 else runnable[int(self._draw() * len(runnable))]
        ready = lane.ready
        index = 0 if self._in_order or len(ready) == 1 else int(self._draw() * len(ready))
        handle = ready.pop(index)
        if handle.cancelled():
            return
        self.callbacks += 1
        self.trace = hash((self.trace, lane.number, index, len(ready)))
        self._current = lane
        handle.run()
        self._current = self.base
        if lane.fuse is not None:
            lane.fuse -= 1
            if lane.fuse <= 0:
                lane.die()
        if self._cost:
            self._time += self._cost
            self._release_timers()
        if self.callbacks > MAX_CALLBACKS:
            raise AssertionError(f"the run does not end: {self.callbacks} callbacks in {self._time:.1f} seconds")

    def _advance(self) -> None:
        """Move the time to the next timer."""
        while self._timers and (self._timers[0][2].cancelled() or self._timers[0][2].lane.is_dead):
            heapq.heappop(self._timers)
        if not self._timers:
            raise AssertionError("everything waits, and nothing will happen")
        self._time = max(self._time, self._timers[0][0])
        self.record(int(self._time * 1_000_000))
        self._release_timers()

    def _release_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self._time:
            handle = heapq.heappop(self._timers)[2]
            if not handle.cancelled() and not handle.lane.is_dead:
                handle.lane.ready.append(handle)

    def _make(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> Callback:
        # The lane is that of the context. A few timers have an empty context, and belong to the code that sets them.
        if context is None:
            context = contextvars.copy_context()
        handle = Callback(when, callback, args, self, context)
        handle.lane = context.get(LANE, self._current)
        return handle

    def _cancel_all(self) -> None:
        """Cancel all tasks, those of dead lanes too, so that no coroutine is left to be collected."""
        for lane in self._lanes:
            lane.is_dead = lane.is_paused = False
            lane.fuse = None
        self._timers.clear()
        for _ in range(20):
            pending = [task for task in self._tasks if not task.done()]
            if not pending:
                return
            for task in pending:
                task.cancel()
            for _ in range(100_000):
                if not any(lane.ready for lane in self._lanes):
                    break
                with suppress(AssertionError):
                    self._step()


def _settle(future: "asyncio.Future[T]", func: Callable[..., T], args: tuple[Any, ...]) -> None:
    if future.done():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:  # noqa: BLE001 - any error of the function
        future.set_exception(error)
