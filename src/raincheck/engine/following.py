"""Seeing tasks change: one, or many at once. A store that is away for a while is waited for."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

from raincheck.clock import Clock
from raincheck.core.content import View
from raincheck.core.owner import Scope
from raincheck.core.records import Task, TaskId
from raincheck.core.retry import pause_after
from raincheck.engine.means import Means
from raincheck.engine.wakeups import Wakeups, Woken
from raincheck.errors import ConfigurationError, StoreUnavailable, TaskNotFound


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
