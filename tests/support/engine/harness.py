"""A harness with the common operations of engine tests."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from raincheck.clock import SystemClock
from raincheck.core.change import Change
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, Task, TaskId, View
from raincheck.core.values import Json, decode
from raincheck.engine import Engine, Settings, Toolbox
from raincheck.stores.base import Store

QUICK = Settings(lease=1.0, park_after=0.05, grace=0.2, progress_interval=0.02, poll_interval=0.5)
"""Short times, for tests that wait for them on the real clock."""


class EngineHarness:
    """A store, a toolbox and an engine, with shortcuts to run tasks and read their records."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.toolbox = Toolbox()
        self.engine: Engine

    @asynccontextmanager
    async def running(self, settings: Settings = QUICK, **options: Any) -> AsyncGenerator[Engine]:
        async with Engine(self.store, self.toolbox, settings=settings, **options) as self.engine:
            yield self.engine

    async def submit_elsewhere(self, tool: str, **arguments: Json) -> Task:
        """Submit a task from another engine, so that it is queued for a worker and not started directly."""
        return await Engine(self.store, self.toolbox, works=False).submit(tool, arguments)

    async def result_of(self, tool: str, **arguments: Json) -> Json:
        """Run a task to its end, and return its result."""
        task = await self.engine.submit(tool, arguments)
        view = await self.engine.wait(task.id)
        assert view.task.phase is Phase.COMPLETED, (view.task, view.outcome)
        return outcome_of(view)

    async def failure_of(self, tool: str, **arguments: Json) -> tuple[Task, Any]:
        """Run a task that fails, and return the task and its error."""
        task = await self.engine.submit(tool, arguments)
        view = await self.engine.wait(task.id)
        assert view.task.phase is Phase.FAILED, (view.task, view.outcome)
        return view.task, outcome_of(view)

    async def reach(self, task_id: TaskId, phase: Phase) -> Task:
        """Wait until the task is in a phase."""
        view = await self.engine.wait(task_id, until=lambda task: task.phase is phase)
        assert view.task.phase is phase, view.task
        return view.task

    async def history(self, task_id: TaskId) -> tuple[HistoryEntry, ...]:
        return await self.store.history(task_id, Scope.everything(), now=SystemClock().now())

    async def events(self, task_id: TaskId) -> list[str]:
        return [str(entry.event) for entry in await self.history(task_id)]


class CommitHookStore:
    """A proxy of a store that calls a function just before the first commit of an event, to script a race."""

    def __init__(self, store: Store, event: Event, action: Callable[[Task], Awaitable[object]]) -> None:
        self._store = store
        self._event = event
        self._action: Callable[[Task], Awaitable[object]] | None = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Sequence[Change]) -> None:
        (change,) = changes
        if self._action is not None and change.entry is not None and change.entry.event is self._event:
            action, self._action = self._action, None
            await action(change.before)
        await self._store.commit(changes)


def outcome_of(view: View) -> Json:
    return None if view.outcome is None else decode(view.outcome)
