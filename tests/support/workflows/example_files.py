"""Run the example workflows in a copy of their folder, on SQLite."""

import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from raincheck import Engine, Toolbox, open_store
from raincheck.core.records import Task, TaskId, View
from raincheck.core.values import Json
from raincheck.workflows import load_workflows
from tests.support import ROOT
from tests.support.workflows.harness import QUICK, result_of

EXAMPLES = ROOT / "examples" / "workflows"

# The modules that stand in for external systems are beside the examples, outside of any package.
sys.path.insert(0, str(ROOT))


class ExampleRunner:
    """One of the examples, and an engine that runs it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.file = folder / f"{name}.yaml"
        self.engine: Engine
        if not folder.exists():
            shutil.copytree(EXAMPLES, folder)

    def replace_text(self, old: str, new: str) -> None:
        """Replace a text in the file, such as a duration."""
        text = self.file.read_text()
        assert old in text, f"{self.file} does not contain {old!r}"
        self.file.write_text(text.replace(old, new))

    @asynccontextmanager
    async def running(self, *, works: bool = True) -> AsyncGenerator[Engine]:
        toolbox = Toolbox()
        for definition in (await asyncio.to_thread(load_workflows, self.file)).definitions.values():
            toolbox.add(definition.tool())
        async with open_store(str(self.folder / "tasks.db")) as store:
            # An engine that does not work only creates and controls tasks.
            if works:
                async with Engine(store, toolbox, settings=QUICK) as self.engine:
                    yield self.engine
            else:
                self.engine = Engine(store, toolbox, works=False)
                yield self.engine

    async def submit(self, **arguments: Json) -> Task:
        return await self.engine.submit(self.name, arguments)

    async def answer(self, task_id: TaskId, content: Json, action: str = "accept") -> str:
        """Answer the task's question, and return its request."""
        view = await self.engine.wait(task_id, until=lambda task: task.open_inputs == 1)
        (question,) = view.inputs
        await self.engine.answer(task_id, {question.key: {"action": action, "content": content}})
        return question.request.decode()

    async def wait_for_end(self, task_id: TaskId) -> tuple[View, Json]:
        view = await self.engine.wait(task_id)
        return view, result_of(view)

    async def wait_for_state(self, task_id: TaskId, state: str) -> Task:
        view = await self.engine.wait(task_id, until=lambda task: task.state is not None and task.state.name == state)
        assert view.task.state is not None
        assert view.task.state.name == state, result_of(view)
        return view.task
