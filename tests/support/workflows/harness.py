"""Helpers for tests of workflows."""

import asyncio
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import TaskId, View
from raincheck.core.values import Json, decode
from raincheck.engine import Engine, Settings, Toolbox
from raincheck.stores.base import Store
from raincheck.stores.memory import MemoryStore
from raincheck.workflows import Workflows, load_workflows

QUICK = Settings(lease=1.0, park_after=0.05, grace=3.0, progress_interval=0.02, poll_interval=0.5)
"""Short times, for tests that wait for them on the real clock."""


class WorkflowHarness:
    """A folder with a workflow file, and an engine that runs its workflows."""

    def __init__(self, folder: Path, store: Store | None = None) -> None:
        self.folder = folder
        self.file = folder / "flows.yaml"
        self.store: Store = store or MemoryStore()
        self.engine: Engine

    def write(self, text: str) -> Path:
        """Write the file. Its first line, `raincheck: 1`, may be left out."""
        body = textwrap.dedent(text)
        self.file.write_text(
            body if body.startswith(("raincheck:", "{")) else f"raincheck: 1\n{body}", encoding="utf-8"
        )
        return self.file

    def load(self) -> Workflows:
        return load_workflows(self.file)

    @asynccontextmanager
    async def running(
        self, text: str | None = None, settings: Settings = QUICK, *, works: bool = True
    ) -> AsyncGenerator[Engine]:
        """Run an engine with the workflows of the file."""
        if text is not None:
            await asyncio.to_thread(self.write, text)
        toolbox = Toolbox()
        for definition in (await asyncio.to_thread(self.load)).definitions.values():
            toolbox.add(definition.tool())
        await self.store.open()
        async with Engine(self.store, toolbox, settings=settings, works=works) as self.engine:
            yield self.engine

    async def run(self, text: str, name: str = "flow", **arguments: Json) -> Json:
        """Write the file, run a workflow to its end, and return its result."""
        async with self.running(text):
            return await self.result(name, **arguments)

    async def failure(self, text: str, name: str = "flow", **arguments: Json) -> str:
        """Write the file, run a workflow that ends with an error, and return its message."""
        async with self.running(text):
            return await self.error(name, **arguments)

    async def result(self, name: str = "flow", **arguments: Json) -> Json:
        view = await self.run_to_end(name, **arguments)
        assert view.task.phase is Phase.COMPLETED, (view.task, view.outcome)
        assert not view.task.is_error, view.outcome
        return result_of(view)

    async def error(self, name: str = "flow", **arguments: Json) -> str:
        view = await self.run_to_end(name, **arguments)
        assert view.task.is_error, (view.task, view.outcome)
        return str(cast("Any", result_of(view))["message"])

    async def run_to_end(self, name: str = "flow", **arguments: Json) -> View:
        task = await self.engine.submit(name, arguments)
        return await self.engine.wait(task.id)

    async def checkpoint_names(self, task_id: TaskId) -> list[str]:
        """Return the names of a task's checkpoints."""
        journal = await self.store.journal(task_id, Scope.everything(), now=SystemClock().now())
        return [step.name for step in journal.steps]


def result_of(view: View) -> Json:
    return None if view.outcome is None else decode(view.outcome)
