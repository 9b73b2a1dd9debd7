"""When a worker is killed in a pipeline, finished steps are not repeated and the result is the same."""

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
from raincheck.core.records import TaskId, View
from raincheck.core.values import Json
from raincheck.engine import Engine
from raincheck.stores.base import Store
from raincheck.testing import check_invariants
from tests.support.workflows import killable_pipelines
from tests.support.workflows.harness import result_of

pytestmark = pytest.mark.anyio


def step(step_id: str, *needs: str, **more: Json) -> dict[str, Json]:
    run: Json = {"shell": "echo $NAME >> log; sleep 0.15; echo $NAME", "env": {"NAME": step_id}}
    return {"id": step_id, "needs": list(needs), "run": run, **more}


STEPS: list[dict[str, Json]] = [
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


class WorkerPool:
    """A folder with a pipeline and a store, and the worker processes on it."""

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
        """Wait until the steps have written this many lines. They run in other processes, so this polls."""
        async with asyncio.timeout(30):
            while (await asyncio.to_thread(self.lines)).total() < count:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.01)

    async def checkpoint_names(self, task_id: TaskId) -> set[str]:
        journal = await self.store.journal(task_id, Scope.everything(), now=SystemClock().now())
        return {step.name for step in journal.steps if "[" not in step.name}

    async def end_of(self, task_id: TaskId) -> View:
        async with asyncio.timeout(45):
            return await self.engine.wait(task_id)


@asynccontextmanager
async def worker_pool(folder: Path, flow: dict[str, Any]) -> AsyncGenerator[WorkerPool]:
    file = folder / "flow.yaml"
    content = yaml.safe_dump({"raincheck": 1, "workflows": {"flow": flow}})
    await asyncio.to_thread(file.write_text, content)
    toolbox = await asyncio.to_thread(killable_pipelines.toolbox_of, file)
    async with open_store(folder / "tasks.db") as store:
        async with Engine(store, toolbox, settings=killable_pipelines.SETTINGS, works=False) as engine:
            pool = WorkerPool(folder, store, engine)
            try:
                yield pool
            finally:
                for worker in pool.workers:
                    if worker.returncode is None:
                        await pool.kill(worker)
        await check_invariants(store)


OUTPUT = {str(model["id"]): f"{{{{ steps.{model['id']}.result }}}}" for model in STEPS}


async def test_a_pipeline_whose_worker_is_killed_repeatedly_has_the_same_result(tmp_path: Path) -> None:
    async with worker_pool(tmp_path, {"steps": STEPS, "output": OUTPUT}) as pool:
        task = await pool.engine.submit("flow")
        finished: Counter[str] = Counter()
        # While steps run in parallel, and while items do.
        for lines in (4, 9):
            worker = await pool.start_worker()
            await pool.wait_for_lines(lines)
            await pool.kill(worker)
            done = await pool.checkpoint_names(task.id)
            finished |= Counter({name: count for name, count in pool.lines().items() if name in done})
        await pool.start_worker()
        view = await pool.end_of(task.id)
        counts = pool.lines()
    assert {"one", "two"} <= finished.keys()
    assert all(counts[name] == count for name, count in finished.items()), "recorded steps are not run again"
    result = cast("Any", result_of(view))
    assert not view.task.is_error, result
    ran = {"exit_code": 0, "stderr": ""}
    expected: dict[str, Json] = {str(model["id"]): {**ran, "stdout": model["id"]} for model in STEPS}
    expected |= {"each": [{**ran, "stdout": "each"}] * 3, "nap": None, "maybe": None}
    assert result == expected
    assert counts["each"] >= 3
    assert set(counts) == {name for name in expected if name not in ("nap", "maybe")}


async def test_a_pipeline_whose_worker_is_killed_during_compensation_resumes_it(tmp_path: Path) -> None:
    steps = [
        step("one", on_error={"compensate": "undo_one"}),
        step("two", "one", on_error={"compensate": "undo_two"}),
        {"id": "bad", "needs": ["two"], "run": {"shell": "echo bad >> log; exit 3"}},
        # Runs beside the failing step and is stopped with it. It must not start again.
        {"id": "beside", "needs": ["two"], "run": {"shell": "echo beside >> log; sleep 60"}},
        step("undo_one"),
        step("undo_two"),
    ]
    for compensation in steps[-2:]:
        del compensation["needs"]
    async with worker_pool(tmp_path, {"steps": steps}) as pool:
        task = await pool.engine.submit("flow")
        worker = await pool.start_worker()
        async with asyncio.timeout(30):
            while "undo_two" not in await asyncio.to_thread(pool.lines):  # noqa: ASYNC110 - written by a process
                await asyncio.sleep(0.01)
        await pool.kill(worker)
        before = pool.lines()
        await pool.start_worker()
        view = await pool.end_of(task.id)
        counts = pool.lines()
    message = cast("Any", result_of(view))["message"]
    assert message == ("step 'bad' failed (exit) at `run a shell script`: exit code 3; undone by undo_two, undo_one")
    for name in ("one", "two", "bad", "beside"):
        assert counts[name] == before[name], name
    assert counts["undo_one"] == 1
