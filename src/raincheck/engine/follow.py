"""Follow changes of one task or of many. While the store is unavailable, followers wait.

One listener serves the whole engine: it passes hints from the store to the waiters of each task.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

from raincheck._async import retry_while_unavailable
from raincheck.clock import Clock
from raincheck.core.owner import Scope
from raincheck.core.records import Task, TaskId, View
from raincheck.engine.tool import EngineDeps
from raincheck.errors import ConfigurationError, StoreUnavailable, TaskNotFound
from raincheck.stores.change_feed import ANY_TASK, ChangeHint


class TaskWaiter:
    """Tracks which of the followed tasks may have changed."""

    def __init__(self, task_ids: Iterable[TaskId], next_poll_at: float) -> None:
        self.task_ids = list(task_ids)
        self.next_poll_at = next_poll_at
        """When to poll all of the tasks, in case a change was missed."""
        self.event = asyncio.Event()
        self._changed: set[TaskId] = set()
        self._ended: dict[TaskId, View] = {}

    def notify(self, task_ids: Iterable[TaskId]) -> None:
        self._changed.update(task_ids)
        self.event.set()

    def notify_ended(self, view: View) -> None:
        self._ended[view.task.id] = view
        self.notify([view.task.id])

    def pop_changed(self) -> set[TaskId]:
        """Return the tasks that may have changed since the last call."""
        changed, self._changed = self._changed, set()
        self.event.clear()
        return changed

    def pop_ended(self, task_id: TaskId) -> View | None:
        """Return the final view of a task, if there was a notification of it."""
        return self._ended.pop(task_id, None)


class WaiterRegistry:
    """The waiters of each task, which are notified while the engine runs."""

    def __init__(self) -> None:
        self._waiters: dict[TaskId, set[TaskWaiter]] = {}
        self._has_task: Callable[[Task], bool] | None = None

    @property
    def is_listening(self) -> bool:
        return self._has_task is not None

    def start(self, has_task: Callable[[Task], bool]) -> None:
        """Accept waiters. The engine reports the outcome of the tasks that it has."""
        self._has_task = has_task

    def stop(self) -> None:
        """Accept no more waiters, and wake all: there will be no more notifications."""
        self._has_task = None
        self.notify(list(self._waiters))

    def will_notify(self, task: Task) -> bool:
        """Return whether this engine has the task in this version, and will report its outcome."""
        return self._has_task is not None and self._has_task(task)

    def add_waiter(self, task_ids: Iterable[TaskId], *, next_poll_at: float) -> TaskWaiter:
        """Return a waiter that is notified when one of the tasks may have changed, until it is removed."""
        waiter = TaskWaiter(task_ids, next_poll_at)
        for task_id in waiter.task_ids:
            self._waiters.setdefault(task_id, set()).add(waiter)
        return waiter

    def remove_waiter(self, waiter: TaskWaiter) -> None:
        for task_id in waiter.task_ids:
            waiters = self._waiters.get(task_id, set())
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(task_id, None)

    def wake_due(self, now: float, poll_interval: float) -> None:
        """Wake the waiters whose poll is due, with all of their tasks."""
        due = {waiter for waiters in self._waiters.values() for waiter in waiters if waiter.next_poll_at <= now}
        for waiter in due:
            waiter.next_poll_at = now + poll_interval
            waiter.notify(waiter.task_ids)

    def on_hint(self, hint: ChangeHint) -> None:
        """Notify the waiters of the tasks that may have changed."""
        self.notify(list(self._waiters) if hint == ANY_TASK else hint)

    def notify(self, task_ids: Iterable[TaskId]) -> None:
        """Notify the waiters that these tasks may have changed."""
        for task_id in task_ids:
            for waiter in self._waiters.get(task_id, ()):
                waiter.notify([task_id])

    def notify_ended(self, view: View) -> None:
        """Notify the waiters of an ended task with its final view. They need not read it: it never changes again."""
        for waiter in self._waiters.get(view.task.id, ()):
            waiter.notify_ended(view)


class FollowTimer:
    """Wakes a waiter when its timeout expires."""

    def __init__(self, clock: Clock, seconds: float, waiter: TaskWaiter) -> None:
        self.is_expired = False
        self.on_expired: Callable[[], object] = waiter.event.set
        self.cancel = clock.call_later(seconds, self._end)

    def _end(self) -> None:
        self.is_expired = True
        self.on_expired()


class TaskFollower:
    """Follows tasks as of the moment when it is created.

    Reads are as of that moment: a follower sees the end of its task, even if the task has expired by then.
    """

    def __init__(self, deps: EngineDeps, waiters: WaiterRegistry, scope: Scope) -> None:
        self._deps = deps
        self._waiters = waiters
        self._scope = scope
        self._started_at = deps.clock.now()

    async def follow(
        self,
        task_ids: Iterable[TaskId],
        last_seen: Task | None = None,
        *,
        must_exist: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - on the engine's clock
    ) -> AsyncGenerator[View]:
        """Yield each task now and after each of its changes, until all have ended or are gone, or the timeout expires.

        If an attempt in this process has the task in the version `last_seen`, its outcome will be reported here: the
        task is not read first, and `last_seen` is not yielded again.

        Raises:
            TaskNotFound: a task does not exist, or no longer exists, and `must_exist` is set.
            ConfigurationError: the engine is not running.
            StoreUnavailable: the engine has stopped.
        """
        if last_seen is not None:
            # It may have ended and expired since then.
            self._started_at = min(self._started_at, last_seen.updated_at)
        if not self._waiters.is_listening:
            raise ConfigurationError("this engine is not running, so it can't follow tasks: enter it with `async with`")
        versions = dict.fromkeys(task_ids, 0)
        next_poll_at = self._deps.clock.monotonic() + self._deps.settings.poll_interval
        waiter, timer = self._waiters.add_waiter(versions, next_poll_at=next_poll_at), None
        try:
            timer = None if timeout is None else FollowTimer(self._deps.clock, timeout, waiter)
            changed = set(versions)
            if last_seen is not None and self._will_be_notified(last_seen):
                versions, changed = {last_seen.id: last_seen.version}, set[TaskId]()
            while versions:
                for task_id in changed & versions.keys():
                    try:
                        view = self._ended_view(waiter, task_id) or await self._read_in_time(task_id, timer)
                    except TaskNotFound:
                        if must_exist:
                            raise
                        del versions[task_id]
                        continue
                    if view is None:
                        return
                    if view.task.version != versions[task_id]:
                        versions[task_id] = view.task.version
                        yield view
                    if view.task.is_terminal:
                        del versions[task_id]
                if timer is not None and timer.is_expired:
                    return
                if versions:
                    await waiter.event.wait()
                    changed = waiter.pop_changed()
        finally:
            self._waiters.remove_waiter(waiter)
            if timer is not None:
                timer.cancel()

    def _will_be_notified(self, task: Task) -> bool:
        return self._scope.covers(task.namespace, task.owner) and self._waiters.will_notify(task)

    def _ended_view(self, waiter: TaskWaiter, task_id: TaskId) -> View | None:
        """Return the final view of the task, if an attempt in this process wrote it and it is within the scope."""
        view = waiter.pop_ended(task_id)
        is_in_scope = view is not None and self._scope.covers(view.task.namespace, view.task.owner)
        return view if is_in_scope else None

    async def _read_in_time(self, task_id: TaskId, timer: FollowTimer | None) -> View | None:
        """Read the task; None if the timeout expires first."""
        if timer is None:
            return await self._read(task_id)
        if timer.is_expired:
            return None
        loop, wake = asyncio.get_running_loop(), timer.on_expired
        try:
            async with asyncio.timeout(None) as scope:
                timer.on_expired = lambda: scope.reschedule(loop.time())
                try:
                    return await self._read(task_id)
                finally:
                    timer.on_expired = wake
        except TimeoutError:
            return None

    async def _read(self, task_id: TaskId) -> View:
        self._raise_if_stopped()
        return await retry_while_unavailable(
            lambda: self._deps.store.view(task_id, self._scope, now=self._started_at),
            on_failure=lambda _: self._raise_if_stopped(),
            sleep=self._deps.clock.sleep,
        )

    def _raise_if_stopped(self) -> None:
        if not self._waiters.is_listening:
            raise StoreUnavailable("the engine", "it has stopped: try again when it is running")
