"""Seeing tasks change, without an engine: the store hints at what changed, and it is read again."""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from datetime import datetime

from raincheck.core.lifecycle import LIVE
from raincheck.core.records import Task, TaskId
from raincheck.errors import TaskNotFound
from raincheck.operations.select import EVERYTHING
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANYTHING, Hint
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery

LIVING = TaskQuery(EVERYTHING, phases=LIVE)


@dataclass(frozen=True, slots=True)
class Seen:
    """A task as it is now; None if it is not kept any longer."""

    task_id: TaskId
    task: Task | None


class Watch:
    """Watches some tasks until all of them have ended; or all that live, and what comes to live meanwhile.

    They are read as of the moment when that begins, so that the end of a task is seen though it may not be kept
    any longer.
    """

    def __init__(self, store: Store, task_ids: Iterable[TaskId] | None, *, now: datetime) -> None:
        self._store = store
        self._now = now
        self._watches_all = task_ids is None
        self._versions: dict[TaskId, int] = dict.fromkeys(task_ids or (), 0)
        self._ended: set[TaskId] = set()

    async def changes(self) -> AsyncGenerator[Seen]:
        """Each task as it is, and again after each of its changes. Changes in quick succession are one."""
        with self._store.listen() as feed:
            # Listening comes first, so that nothing is missed between a look and the next hint.
            hint = ANYTHING
            while True:
                for task_id in await self._affected(hint):
                    seen = await self._look(task_id)
                    if seen is not None:
                        yield seen
                if not self._versions:
                    return
                try:
                    hint = await anext(feed)
                except StopAsyncIteration:
                    return

    async def _affected(self, hint: Hint) -> list[TaskId]:
        """Which tasks to look at after a hint."""
        if hint != ANYTHING:
            return sorted(hint if self._watches_all else hint & self._versions.keys())
        ids = dict.fromkeys(self._versions)
        if self._watches_all:
            ids |= dict.fromkeys(await self._living())
        return list(ids)

    async def _living(self) -> list[TaskId]:
        ids: list[TaskId] = []
        after = None
        while True:
            page = await self._store.list_tasks(LIVING, now=self._now, after=after, limit=PAGE_LIMIT)
            ids += [task.id for task in page.tasks]
            after = page.next
            if after is None:
                return ids

    async def _look(self, task_id: TaskId) -> Seen | None:
        """The task, if there is something new about it."""
        is_known = task_id in self._versions
        if task_id in self._ended:
            # Nothing follows its end, and it was told.
            return None
        try:
            task = await self._store.load(task_id, EVERYTHING, now=self._now)
        except TaskNotFound:
            self._versions.pop(task_id, None)
            return Seen(task_id, None) if is_known else None
        if task.version == self._versions.get(task_id):
            return None
        self._versions[task_id] = task.version
        if task.is_terminal:
            del self._versions[task_id]
            self._ended.add(task_id)
        return Seen(task_id, task)
