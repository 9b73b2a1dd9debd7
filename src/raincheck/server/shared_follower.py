"""Follow tasks for many callers at once: each change of a task is read once per process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from raincheck.core.records import Task, TaskId, View
from raincheck.engine import Engine
from raincheck.server.runtime import ServerRuntime


class _FollowedTask:
    """A followed task and its latest view."""

    def __init__(self, task: Task, engine: Engine) -> None:
        self.users = 0
        # Parts of a task that are not in its record have to be read.
        is_whole = not (task.is_terminal or task.open_inputs)
        self.view: View | None = View(task, None, ()) if is_whole else None
        self.changed = asyncio.Event()
        self.follow_task = asyncio.ensure_future(self._follow(task, engine))
        self.follow_task.add_done_callback(self._end)

    async def _follow(self, task: Task, engine: Engine) -> None:
        last_seen = task if self.view is not None else None
        async with aclosing(engine.follow(task.id, owner=task.owner, last_seen=last_seen)) as views:
            async for view in views:
                self.view = view
                self._notify()

    def _end(self, follow_task: "asyncio.Future[None]") -> None:
        if not follow_task.cancelled():
            # Retrieved here, so that asyncio does not report the error of a follower that no caller waits for any more.
            follow_task.exception()
        self._notify()

    def _notify(self) -> None:
        # Each change has its own event, so that a waiter that arrives late for one does not miss the next.
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class SharedFollower:
    """Follows each task once for all the callers in this process that wait for it."""

    def __init__(self, runtime: ServerRuntime) -> None:
        self._runtime = runtime
        self._followed: dict[TaskId, _FollowedTask] = {}

    async def follow(self, task: Task) -> AsyncGenerator[View]:
        """Yield the task now, and again after each change, until it has ended. Like `Engine.follow`, but shared.

        Check that the task belongs to the caller before calling this.
        """
        followed = self._followed.get(task.id)
        if followed is None or followed.follow_task.done():
            followed = self._followed[task.id] = _FollowedTask(task, self._runtime.engine)
        followed.users += 1
        last_version = 0
        try:
            while True:
                changed = followed.changed
                view = followed.view
                if view is not None and view.task.version != last_version:
                    last_version = view.task.version
                    yield view
                    if view.task.is_terminal:
                        return
                elif followed.follow_task.done():
                    # Raises the error that stopped it. Without an error, it can't have stopped.
                    followed.follow_task.result()
                    raise AssertionError("the follower stopped before the task ended")
                else:
                    await changed.wait()
        finally:
            followed.users -= 1
            if not followed.users:
                followed.follow_task.cancel()
                if self._followed.get(task.id) is followed:
                    del self._followed[task.id]
