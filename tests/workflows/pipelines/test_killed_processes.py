"""Processes that are killed in the middle of pipelines: what was done is not done again, and the end is the same."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from raincheck import open_store
from raincheck.clock import SystemClock
from raincheck.core.owner import Scope
from raincheck.core.payload import Json
from raincheck.core.records import TaskId, View
from raincheck.engine import Engine
from raincheck.stores.base import Store
from raincheck.testing import check_invariants
from tests.support.workflows import killable_pipelines
from tests.support.workflows.harness import said

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


def step(step_id: str, *needs: str, **more: Json) -> dict[str, Json]:
    run: Json = {"shell": "echo $NAME >> log; sleep 0.15; echo $NAME", "env": {"NAME": step_id}}
    return {"id": step_id, "needs": list(needs), "run": run, **more}


TWELVE: list[dict[str, Json]] = [
    step("one"),
    step("two", "one"),
    *(step(f"side{number}", "two") for number in range(4)),
    step("three", "side0", "side1", "side2", "side3"),
    {**step("each", "three"), "for_each": [1, 2, 3], "max_parallel": 2},
    {"id": "nap", "needs": ["each"], "sleep": 0.3},
    step("four", "nap", on_error="continue"),
    {**step("maybe", "four"), "if": "steps.four.status == 'failed'"},
    step("last", "maybe"),
]


class Yard:
    """A folder with a pipeline, a store and worker processes that come and go."""

    def __init__(self, folder: Path, store: Store, engine: Engine) -> None:
        self.folder, self.store, self.engine = folder, store, engine
        self.workers: list[asyncio.subprocess.Process] = []

    async def start_worker(self) -> asyncio.subprocess.Process:
        arguments = (killable_pipelines.__file__, str(self.folder / "tasks.db"), str(self.folder / "flow.yaml"))
        worker = await asyncio.create_subprocess_exec(sys.executable, *arguments)
        self.workers.append(worker)
        return worker

    async def kill(self, worker: asyncio.subprocess.Process) -> None:
        worker.kill()
        assert await worker.wait() == -signal.SIGKILL

    def lines(self) -> Counter[str]:
        log = self.folder / "log"
        return Counter(log.read_text().split()) if log.exists() else Counter()

    async def wait_for_lines(self, count: int) -> None:
        """Until the steps have written so much. They are other processes, so there is nothing to wait on but time."""
        async with asyncio.timeout(30):
            while (await asyncio.to_thread(self.lines)).total() < count:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.01)

    async def recorded(self, task_id: TaskId) -> set[str]:
        journal = await self.store.journal(task_id, Scope.everything(), now=SystemClock().now())
        return {one.name.partition("[")[0] for one in journal.steps if "[" not in one.name}

    async def end_of(self, task_id: TaskId) -> View:
        async with asyncio.timeout(45):
            return await self.engine.wait(task_id)


@asynccontextmanager
async def yard_with(folder: Path, flow: dict[str, Any]) -> AsyncGenerator[Yard]:
    file = folder / "flow.yaml"
    content = yaml.safe_dump({"raincheck": 1, "workflows": {"flow": flow}})
    await asyncio.to_thread(file.write_text, content)
    toolbox = await asyncio.to_thread(killable_pipelines.toolbox_of, file)
    async with open_store(folder / "tasks.db") as store:
        async with Engine(store, toolbox, settings=killable_pipelines.SETTINGS, works=False) as engine:
            yard = Yard(folder, store, engine)
            try:
                yield yard
            finally:
                for worker in yard.workers:
                    if worker.returncode is None:
                        await yard.kill(worker)
        await check_invariants(store)


OUTPUT = {str(one["id"]): f"{{{{ steps.{one['id']}.result }}}}" for one in TWELVE}


async def test_a_pipeline_whose_worker_is_killed_again_and_again_comes_to_the_same_end(tmp_path: Path) -> None:
    async with yard_with(tmp_path, {"steps": TWELVE, "output": OUTPUT}) as yard:
        task = await yard.engine.submit("flow")
        finished: Counter[str] = Counter()
        # In the middle of the steps side by side, and of the items.
        for lines in (4, 9):
            worker = await yard.start_worker()
            await yard.wait_for_lines(lines)
            await yard.kill(worker)
            done = await yard.recorded(task.id)
            finished |= Counter({name: count for name, count in yard.lines().items() if name in done})
        await yard.start_worker()
        view = await yard.end_of(task.id)
        counted = yard.lines()
    assert {"one", "two"} <= finished.keys()
    assert all(counted[name] == count for name, count in finished.items()), "what is recorded is not run again"
    result = cast("Any", said(view))
    assert not view.task.is_error, result
    ran = {"exit_code": 0, "stderr": ""}
    expected: dict[str, Json] = {str(one["id"]): {**ran, "stdout": one["id"]} for one in TWELVE}
    expected |= {"each": [{**ran, "stdout": "each"}] * 3, "nap": None, "maybe": None}
    assert result == expected
    assert counted["each"] >= 3
    assert set(counted) == {name for name in expected if name not in ("nap", "maybe")}


async def test_a_pipeline_that_is_killed_while_it_undoes_goes_on_with_it(tmp_path: Path) -> None:
    steps = [
        step("one", on_error={"compensate": "undo_one"}),
        step("two", "one", on_error={"compensate": "undo_two"}),
        {"id": "bad", "needs": ["two"], "run": {"shell": "echo bad >> log; exit 3"}},
        # Beside the one that fails, and stopped with it: it must not be begun again.
        {"id": "beside", "needs": ["two"], "run": {"shell": "echo beside >> log; sleep 60"}},
        step("undo_one"),
        step("undo_two"),
    ]
    for one in steps[-2:]:
        del one["needs"]
    async with yard_with(tmp_path, {"steps": steps}) as yard:
        task = await yard.engine.submit("flow")
        worker = await yard.start_worker()
        async with asyncio.timeout(30):
            while "undo_two" not in await asyncio.to_thread(yard.lines):  # noqa: ASYNC110 - written by a process
                await asyncio.sleep(0.01)
        await yard.kill(worker)
        before = yard.lines()
        await yard.start_worker()
        view = await yard.end_of(task.id)
        counted = yard.lines()
    message = cast("Any", said(view))["message"]
    assert message == ("step 'bad' failed (exit) at `run a script of sh`: exit code 3; undone by undo_two, undo_one")
    for name in ("one", "two", "bad", "beside"):
        assert counted[name] == before[name], name
    assert counted["undo_one"] == 1
