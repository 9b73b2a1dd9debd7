"""Instances resume after their worker process is killed in each of their states."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from raincheck import Engine, open_store
from raincheck.core.lifecycle import Phase
from raincheck.core.records import TaskId
from raincheck.testing import check_invariants
from tests.support.engine.harness import outcome_of
from tests.support.workflows import killable_machine

pytestmark = pytest.mark.anyio

STATES = [state.name for state in killable_machine.machine.states if state.kind is None]
EXPECTED_LINES = [
    "loading first", "loading second", "checking first", "checking second", "approving waits", "storing first",
    "storing second",
]  # fmt: skip


async def start_worker(folder: Path, dies_in: str = "") -> asyncio.subprocess.Process:
    arguments = (killable_machine.__file__, str(folder / "tasks.db"), str(folder / "log"), dies_in)
    return await asyncio.create_subprocess_exec(sys.executable, *arguments)


async def wait_for_state(engine: Engine, task_id: TaskId, state: str) -> None:
    async with asyncio.timeout(30):
        await engine.wait(task_id, until=lambda task: task.state is not None and task.state.name == state)


async def wait_for_action(folder: Path, times: int) -> None:
    """Wait until the action of the state has started this often. It runs in another process, so this polls."""
    async with asyncio.timeout(30):
        while (await asyncio.to_thread((folder / "log").read_text)).count("approving waits") < times:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("state", STATES)
async def test_an_instance_resumes_in_the_state_in_which_its_worker_was_killed(tmp_path: Path, state: str) -> None:
    async with open_store(tmp_path / "tasks.db") as store:
        async with Engine(store, killable_machine.toolbox, settings=killable_machine.SETTINGS, works=False) as engine:
            task = await engine.submit("validation")
            first = await start_worker(tmp_path, state)
            try:
                if state in STATES[3:]:
                    await wait_for_state(engine, task.id, "approving")
                    await wait_for_action(tmp_path, 1)
                    await engine.instances.transition(task.id, "approve")
                if state == "resting":
                    await wait_for_state(engine, task.id, "resting")
                    first.kill()
                assert await asyncio.wait_for(first.wait(), 30) == -signal.SIGKILL
                second = await start_worker(tmp_path)
                try:
                    if state not in STATES[3:]:
                        await wait_for_state(engine, task.id, "approving")
                        await wait_for_action(tmp_path, 2 if state == "approving" else 1)
                        await engine.instances.transition(task.id, "approve")
                    async with asyncio.timeout(30):
                        view = await engine.wait(task.id)
                finally:
                    second.terminate()
                    await second.wait()
            finally:
                if first.returncode is None:
                    first.kill()
                    await first.wait()
        assert (view.task.phase, outcome_of(view)) == (
            Phase.COMPLETED,
            {"loading": "done", "checking": "done", "storing": "done"},
        )
        lines = (await asyncio.to_thread((tmp_path / "log").read_text)).splitlines()
        # Recorded steps do not run repeated. A step that was interrupted was not recorded, and does.
        repeated = ["approving waits"] if state == "approving" else []
        assert sorted(lines) == sorted(EXPECTED_LINES + repeated)
        await check_invariants(store)
