"""One listener for the whole engine: hints from the store, passed on to whoever waits for that task."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from raincheck.core.content import View
from raincheck.core.records import Task, TaskId
from raincheck.stores.feed import ANYTHING, Hint


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
