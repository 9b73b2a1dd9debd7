"""Seeing tasks change: one, or many at once. A store that is away for a while is waited for.

One listener for the whole engine: hints from the store, passed on to whoever waits for that task.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import contextmanager

from raincheck.clock import Clock
from raincheck.core.owner import Scope
from raincheck.core.policies import pause_after
from raincheck.core.records import Task, TaskId, View
from raincheck.engine.submit import Means
from raincheck.errors import ConfigurationError, StoreUnavailable, TaskNotFound
from raincheck.stores.change_feed import ANYTHING, Hint


class Woken:
    """Which of the tasks that somebody waits for may have changed."""

    def __init__(self, task_ids: Iterable[TaskId], looks_at: float) -> None:
        self.task_ids = list(task_ids)
        self.looks_at = looks_at
        """When to look at all of them, whoever else is busy: a change may have been missed."""
        self.event = asyncio.Event()
        self._changed: set[TaskId] = set()
        self._ended: dict[TaskId, View] = {}

    def tell(self, task_ids: Iterable[TaskId]) -> None:
        self._changed.update(task_ids)
        self.event.set()

    def tell_end(self, view: View) -> None:
        self._ended[view.task.id] = view
        self.tell([view.task.id])

    def take(self) -> set[TaskId]:
        """Those since the last time."""
        changed, self._changed = self._changed, set()
        self.event.clear()
        return changed

    def take_end(self, task_id: TaskId) -> View | None:
        """The end of a task, if that was told."""
        return self._ended.pop(task_id, None)


class Wakeups:
    """Who waits for which task, and who wants to hear of all."""

    def __init__(self) -> None:
        self._waiting: dict[TaskId, set[Woken]] = {}
        self._hearing: dict[Callable[[Hint], None], Callable[[Task], bool]] = {}

    @property
    def is_listening(self) -> bool:
        return bool(self._hearing)

    @contextmanager
    def hearing(self, hear: Callable[[Hint], None], has: Callable[[Task], bool]) -> Generator[None]:
        """Tell somebody of every hint, who tells us what comes of the tasks that they have."""
        self._hearing[hear] = has
        try:
            yield
        finally:
            del self._hearing[hear]

    def will_tell(self, task: Task) -> bool:
        """Whether somebody has the task as it is here, and will tell what comes of it."""
        return any(has(task) for has in self._hearing.values())

    def begin_waiting(self, task_ids: Iterable[TaskId], *, looks_at: float) -> Woken:
        """What is told whenever one of the tasks may have changed, until the waiting is ended."""
        woken = Woken(task_ids, looks_at)
        for task_id in woken.task_ids:
            self._waiting.setdefault(task_id, set()).add(woken)
        return woken

    def end_waiting(self, woken: Woken) -> None:
        for task_id in woken.task_ids:
            waiting = self._waiting.get(task_id, set())
            waiting.discard(woken)
            if not waiting:
                self._waiting.pop(task_id, None)

    def wake_all(self) -> None:
        """Tell everybody: what they hear of has ended."""
        self.tell(list(self._waiting))

    def wake_due(self, now: float, look_every: float) -> None:
        """Tell those who have heard nothing for long of all that they wait for."""
        due = {woken for waiting in self._waiting.values() for woken in waiting if woken.looks_at <= now}
        for woken in due:
            woken.looks_at = now + look_every
            woken.tell(woken.task_ids)

    def pass_on(self, hint: Hint) -> None:
        """Tell of a hint whom it concerns."""
        for hear in self._hearing:
            hear(hint)
        self.tell(list(self._waiting) if hint == ANYTHING else hint)

    def tell(self, task_ids: Iterable[TaskId]) -> None:
        """These may have changed."""
        for task_id in task_ids:
            for woken in self._waiting.get(task_id, ()):
                woken.tell([task_id])

    def tell_end(self, view: View) -> None:
        """Tell of a task that has ended, so that nobody has to read it: it will never change again."""
        for woken in self._waiting.get(view.task.id, ()):
            woken.tell_end(view)


class Timer:
    """Tells whoever waits for a task that its time is over."""

    def __init__(self, clock: Clock, seconds: float, woken: Woken) -> None:
        self.is_over = False
        self.tell: Callable[[], object] = woken.event.set
        self.cancel = clock.call_later(seconds, self._end)

    def _end(self) -> None:
        self.is_over = True
        self.tell()


class Following:
    """Follows tasks from one moment on.

    They are read as of that moment: whoever waits for a task sees its end, though it may not be kept any longer.
    """

    def __init__(self, means: Means, wakeups: Wakeups, scope: Scope, look_every: float) -> None:
        self._means = means
        self._wakeups = wakeups
        self._scope = scope
        self._look_every = look_every
        self._began = means.clock.now()

    def one(self, task_id: TaskId, known: Task | None = None, within: float | None = None) -> AsyncGenerator[View]:
        """The task as it is, and again after each change, until it has ended, or for so many seconds.

        If an attempt in this process has it just as it is `known`, whatever comes of that is told: so it is not read
        first, and what is known is not told again.

        Raises:
            TaskNotFound: there is no such task, or there is none any more.
            ConfigurationError: the engine does not run.
            StoreUnavailable: it has stopped.
        """
        if known is not None:
            # It may have ended since then, and not be kept any longer.
            self._began = min(self._began, known.updated_at)
        return self._follow([task_id], known, must_exist=True, within=within)

    def many(self, task_ids: Iterable[TaskId]) -> AsyncGenerator[View]:
        """Each task as it is, and again after each of its changes, until all have ended or are gone."""
        return self._follow(task_ids)

    async def _follow(
        self,
        task_ids: Iterable[TaskId],
        known: Task | None = None,
        *,
        must_exist: bool = False,
        within: float | None = None,
    ) -> AsyncGenerator[View]:
        if not self._wakeups.is_listening:
            raise ConfigurationError("this engine does not run, so it hears of nothing: enter it with `async with`")
        seen = dict.fromkeys(task_ids, 0)
        looks_at = self._means.clock.elapsed() + self._look_every
        woken, timer = self._wakeups.begin_waiting(seen, looks_at=looks_at), None
        try:
            timer = None if within is None else Timer(self._means.clock, within, woken)
            look_at = set(seen)
            if known is not None and self._will_be_told(known):
                seen, look_at = {known.id: known.version}, set[TaskId]()
            while seen:
                for task_id in look_at & seen.keys():
                    try:
                        view = self._told(woken, task_id) or await self._read_in_time(task_id, timer)
                    except TaskNotFound:
                        if must_exist:
                            raise
                        del seen[task_id]
                        continue
                    if view is None:
                        return
                    if view.task.version != seen[task_id]:
                        seen[task_id] = view.task.version
                        yield view
                    if view.task.is_terminal:
                        del seen[task_id]
                if timer is not None and timer.is_over:
                    return
                if seen:
                    await woken.event.wait()
                    look_at = woken.take()
        finally:
            self._wakeups.end_waiting(woken)
            if timer is not None:
                timer.cancel()

    def _will_be_told(self, known: Task) -> bool:
        return self._scope.covers(known.namespace, known.owner) and self._wakeups.will_tell(known)

    def _told(self, woken: Woken, task_id: TaskId) -> View | None:
        """The end of the task, if somebody in this process wrote it, and if it is for these eyes."""
        view = woken.take_end(task_id)
        is_theirs = view is not None and self._scope.covers(view.task.namespace, view.task.owner)
        return view if is_theirs else None

    async def _read_in_time(self, task_id: TaskId, timer: Timer | None) -> View | None:
        """None if that takes too long."""
        if timer is None:
            return await self._read(task_id)
        if timer.is_over:
            return None
        loop, wake = asyncio.get_running_loop(), timer.tell
        try:
            async with asyncio.timeout(None) as scope:
                timer.tell = lambda: scope.reschedule(loop.time())
                try:
                    return await self._read(task_id)
                finally:
                    timer.tell = wake
        except TimeoutError:
            return None

    async def _read(self, task_id: TaskId) -> View:
        tries = 0
        while self._wakeups.is_listening:
            try:
                return await self._means.store.view(task_id, self._scope, now=self._began)
            except StoreUnavailable:
                tries += 1
                await self._means.clock.sleep(pause_after(tries))
        raise StoreUnavailable("the engine", "it has stopped: ask again when it runs")
