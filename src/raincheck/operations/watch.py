"""Watch tasks change without an engine: the store hints at changes, and each hinted task is read again."""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from datetime import datetime

from raincheck.core.lifecycle import LIVE_PHASES
from raincheck.core.records import Task, TaskId
from raincheck.errors import TaskNotFound
from raincheck.operations.select import EVERYTHING
from raincheck.stores.base import Store, iterate_tasks
from raincheck.stores.change_feed import ANY_TASK, ChangeHint
from raincheck.stores.requests import TaskQuery

LIVE_TASKS = TaskQuery(EVERYTHING, phases=LIVE_PHASES)


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task as it is now; None if it is no longer stored."""

    task_id: TaskId
    task: Task | None


class TaskWatcher:
    """Watches the given tasks until all of them have ended, or all live tasks and all new ones.

    Tasks are read as of the moment when the watch starts. The end of a task is therefore seen even if the task is no
    longer stored.
    """

    def __init__(self, store: Store, task_ids: Iterable[TaskId] | None, *, now: datetime) -> None:
        self._store = store
        self._now = now
        self._watches_all = task_ids is None
        self._versions: dict[TaskId, int] = dict.fromkeys(task_ids or (), 0)
        self._ended: set[TaskId] = set()

    async def changes(self) -> AsyncGenerator[TaskSnapshot]:
        """Yield each task once, and again after each of its changes. Changes in quick succession are coalesced."""
        with self._store.listen() as feed:
            # Listen first, so that no change between a read and the next hint is missed.
            hint = ANY_TASK
            while True:
                for task_id in await self._affected(hint):
                    snapshot = await self._read(task_id)
                    if snapshot is not None:
                        yield snapshot
                if not self._versions:
                    return
                try:
                    hint = await anext(feed)
                except StopAsyncIteration:
                    return

    async def _affected(self, hint: ChangeHint) -> list[TaskId]:
        """Return the tasks to read after a hint."""
        if hint != ANY_TASK:
            return sorted(hint if self._watches_all else hint & self._versions.keys())
        ids = dict(self._versions)
        if self._watches_all:
            ids |= {task.id: 0 async for task in iterate_tasks(self._store, LIVE_TASKS, now=self._now)}
        return list(ids)

    async def _read(self, task_id: TaskId) -> TaskSnapshot | None:
        """Return the task if it has changed since it was last read."""
        was_seen = task_id in self._versions
        if task_id in self._ended:
            # The end was reported, and nothing follows it.
            return None
        try:
            task = await self._store.load(task_id, EVERYTHING, now=self._now)
        except TaskNotFound:
            self._versions.pop(task_id, None)
            return TaskSnapshot(task_id, None) if was_seen else None
        if task.version == self._versions.get(task_id):
            return None
        self._versions[task_id] = task.version
        if task.is_terminal:
            del self._versions[task_id]
            self._ended.add(task_id)
        return TaskSnapshot(task_id, task)
