"""Seeing tasks change: one, or many at once. A store that is away for a while is waited for."""

from collections.abc import AsyncGenerator, Iterable

from raincheck.core.content import View
from raincheck.core.owner import Scope
from raincheck.core.records import TaskId
from raincheck.engine.hold import Means
from raincheck.engine.timing import first_of, pause_after
from raincheck.engine.wakeups import Wakeups
from raincheck.errors import ConfigurationError, StoreUnavailable, TaskNotFound


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

    def one(self, task_id: TaskId) -> AsyncGenerator[View]:
        """The task as it is, and again after each change, until it has ended.

        Raises:
            TaskNotFound: there is no such task, or there is none any more.
            ConfigurationError: the engine does not run.
            StoreUnavailable: it has stopped.
        """
        return self.many([task_id], must_exist=True)

    async def many(self, task_ids: Iterable[TaskId], *, must_exist: bool = False) -> AsyncGenerator[View]:
        """Each task as it is, and again after each of its changes, until all have ended or are gone."""
        if not self._wakeups.is_listening:
            raise ConfigurationError("this engine does not run, so it hears of nothing: enter it with `async with`")
        seen: dict[TaskId, int] = dict.fromkeys(task_ids, 0)
        clock = self._means.clock
        with self._wakeups.waiting_for(seen) as woken:
            look_at, look_at_all = set(seen), clock.elapsed() + self._look_every
            while seen:
                for task_id in look_at & seen.keys():
                    try:
                        view = await self._read(task_id)
                    except TaskNotFound:
                        if must_exist:
                            raise
                        del seen[task_id]
                        continue
                    if view.task.version != seen[task_id]:
                        seen[task_id] = view.task.version
                        yield view
                    if view.task.is_terminal:
                        del seen[task_id]
                if seen:
                    await first_of(woken.event.wait(), clock.sleep(max(look_at_all - clock.elapsed(), 0.0)))
                    look_at = woken.take()
                    if clock.elapsed() >= look_at_all:
                        # Now and then at all of them, whoever else is busy: a change may have been missed.
                        look_at, look_at_all = set(seen), clock.elapsed() + self._look_every

    async def _read(self, task_id: TaskId) -> View:
        tries = 0
        while self._wakeups.is_listening:
            try:
                return await self._means.store.view(task_id, self._scope, now=self._began)
            except StoreUnavailable:
                tries += 1
                await self._means.clock.sleep(pause_after(tries))
        raise StoreUnavailable("the engine", "it has stopped: ask again when it runs")
