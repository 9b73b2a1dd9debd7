"""Following tasks for many at once: however many wait for a task in this process, it is read once for each change."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from raincheck.core.records import Task, TaskId, View
from raincheck.engine import Engine
from raincheck.server.runtime import Running


class _Watch:
    """One task, and what was seen of it last."""

    def __init__(self, task: Task, engine: Engine) -> None:
        self.users = 0
        # What of a task is not in its record has to be read.
        is_whole = not (task.is_terminal or task.open_inputs)
        self.view: View | None = View(task, None, ()) if is_whole else None
        self.changed = asyncio.Event()
        self.job = asyncio.ensure_future(self._follow(task, engine))
        self.job.add_done_callback(self._end)

    async def _follow(self, task: Task, engine: Engine) -> None:
        known = task if self.view is not None else None
        async with aclosing(engine.follow(task.id, owner=task.owner, known=known)) as views:
            async for view in views:
                self.view = view
                self._tell()

    def _end(self, job: "asyncio.Future[None]") -> None:
        if not job.cancelled():
            # Seen here, so that one that nobody waits for any more is not reported as forgotten.
            job.exception()
        self._tell()

    def _tell(self) -> None:
        # Each change has an event of its own: who comes late to one has not missed the next.
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class Watching:
    """The tasks that somebody in this process waits for."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._watches: dict[TaskId, _Watch] = {}

    async def follow(self, task: Task) -> AsyncGenerator[View]:
        """The task as it is, and again after each change, until it has ended. As `Engine.follow`, and shared.

        Whoever calls this has seen that the task is its caller's.
        """
        watch = self._watches.get(task.id)
        if watch is None or watch.job.done():
            watch = self._watches[task.id] = _Watch(task, self._running.engine)
        watch.users += 1
        seen = 0
        try:
            while True:
                changed = watch.changed
                view = watch.view
                if view is not None and view.task.version != seen:
                    seen = view.task.version
                    yield view
                    if view.task.is_terminal:
                        return
                elif watch.job.done():
                    # With what went wrong. It can't have come to an end without that.
                    watch.job.result()
                    raise AssertionError("a task is followed to its end")
                else:
                    await changed.wait()
        finally:
            watch.users -= 1
            if not watch.users:
                watch.job.cancel()
                if self._watches.get(task.id) is watch:
                    del self._watches[task.id]
