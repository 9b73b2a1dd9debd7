"""Worker processes that are killed: no recorded step runs again, and every task ends."""

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from raincheck import open_store
from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Task
from raincheck.engine import Engine
from raincheck.stores.base import Store
from raincheck.testing import check_invariants
from tests.support.engine import killable_worker

pytestmark = pytest.mark.anyio

clock = SystemClock()

CONCURRENCY = killable_worker.SETTINGS.concurrency
TIMEOUT = 60.0
"""Timeout in seconds, generous for a busy machine."""

ATTEMPTS = (Event.CLAIM, Event.INTERRUPT)


class WorkerProcesses:
    """A store file, an action log, and worker processes."""

    def __init__(self, folder: Path, store: Store, engine: Engine) -> None:
        self.folder, self.store, self.engine = folder, store, engine
        self.action_log = folder / "action_log"
        self.workers: list[asyncio.subprocess.Process] = []

    async def start_worker(self, *tool: str) -> asyncio.subprocess.Process:
        arguments = (killable_worker.__file__, str(self.folder / "tasks.db"), str(self.action_log), *tool)
        worker = await asyncio.create_subprocess_exec(sys.executable, *arguments)
        self.workers.append(worker)
        return worker

    async def kill(self, worker: asyncio.subprocess.Process) -> None:
        worker.kill()
        assert await worker.wait() == -signal.SIGKILL

    async def stop_all(self) -> None:
        for worker in self.workers:
            if worker.returncode is None:
                await self.kill(worker)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.action_log.read_text().splitlines()] if self.action_log.exists() else []

    async def wait_for_lines(self, count: int) -> None:
        """Wait until the workers have written this many lines. They are other processes, so this polls."""
        async with asyncio.timeout(TIMEOUT):
            while len(await asyncio.to_thread(self.lines)) < count:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)

    async def wait_for_all(self, tasks: list[Task]) -> list[Task]:
        async with asyncio.timeout(TIMEOUT):
            return [(await self.engine.wait(task.id)).task for task in tasks]


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[WorkerProcesses]:
    async with open_store(tmp_path / "tasks.db") as store:
        async with Engine(store, killable_worker.toolbox, settings=killable_worker.SETTINGS, works=False) as engine:
            workers = WorkerProcesses(tmp_path, store, engine)
            try:
                yield workers
            finally:
                await workers.stop_all()
        await check_invariants(store)


async def check_that_no_recorded_step_was_run_again(
    workers: WorkerProcesses, tasks: list[Task]
) -> Counter[tuple[str, str]]:
    """How often each step ran, after checking that none ran once it was recorded."""
    runs = [(line[0], line[1], int(line[2])) for line in workers.lines()]
    recorded: dict[tuple[str, str], int] = {}
    for task in tasks:
        journal = await workers.store.journal(task.id, Scope.everything(), now=clock.now())
        assert [step.name for step in journal.steps] == list(killable_worker.STEPS)
        recorded |= {(task.id, step.name): step.attempt for step in journal.steps}
    for task_id, name, attempt in runs:
        assert attempt <= recorded[task_id, name], f"step {name} of {task_id} ran in attempt {attempt} too"
    assert len(set(runs)) == len(runs), "no attempt ran a step twice"
    return Counter((task_id, name) for task_id, name, _ in runs)


@pytest.mark.parametrize("tool", ["five_steps", "five_steps_in_a_thread"])
async def test_a_process_that_is_killed_repeatedly_loses_nothing_and_repeats_no_recorded_step(
    workers: WorkerProcesses, tool: str
) -> None:
    seed = random.randrange(10_000)
    print("seed", seed)  # noqa: T201 - shown if it fails
    chance = random.Random(seed)
    tasks = [await workers.engine.submit(tool) for _ in range(40)]
    for _ in range(5):
        worker = await workers.start_worker()
        await workers.wait_for_lines(len(workers.lines()) + chance.randint(1, 30))
        await asyncio.sleep(chance.uniform(0, 0.05))
        await workers.kill(worker)
    await workers.start_worker()
    ended = await workers.wait_for_all(tasks)

    assert {task.phase for task in ended} == {Phase.COMPLETED}
    runs = await check_that_no_recorded_step_was_run_again(workers, ended)
    assert len(runs) == 40 * 5
    cut_off = sum(runs.values()) - 40 * 5
    assert cut_off <= 5 * killable_worker.SETTINGS.concurrency, "only what was under way may have run again"


async def test_the_tasks_of_a_dead_process_resume_in_another_within_the_lease_time(workers: WorkerProcesses) -> None:
    held = [await workers.engine.submit("five_steps", {"hangs_in": "count"}) for _ in range(CONCURRENCY)]
    victim = await workers.start_worker()
    await workers.wait_for_lines(3 * CONCURRENCY)
    # The victim has no slot left, so that the others run in the survivor, which is then known to be at work.
    others = [await workers.engine.submit("five_steps") for _ in range(CONCURRENCY)]
    survivor = await workers.start_worker()
    await workers.wait_for_all(others)
    await workers.kill(victim)
    killed_at = clock.now()
    ended = await workers.wait_for_all([*held, *others])

    assert {task.phase for task in ended} == {Phase.COMPLETED}
    assert survivor.returncode is None
    runs = await check_that_no_recorded_step_was_run_again(workers, ended)
    assert sum(runs.values()) == len(runs) + CONCURRENCY, "only the step that each was cut off in ran again"
    for task in held:
        history = await workers.engine.history(task.id)
        assert [entry.event for entry in history if entry.event in ATTEMPTS] == [
            Event.CLAIM,
            Event.INTERRUPT,
            Event.CLAIM,
        ]
        # A sweep happens ten times in a lease; the rest is for a machine that is busy with other tests.
        assert history[-1].at - killed_at < timedelta(seconds=10 * killable_worker.LEASE)


async def test_a_task_that_kills_its_process_each_time_fails_after_its_attempts(workers: WorkerProcesses) -> None:
    task = await workers.engine.submit("poison")
    for number in range(1, 4):
        worker = await workers.start_worker()
        async with asyncio.timeout(TIMEOUT):
            assert await worker.wait() == -signal.SIGKILL
        assert len(workers.lines()) == number
    await workers.start_worker()
    (ended,) = await workers.wait_for_all([task])
    assert ended.phase is Phase.FAILED
    assert ended.attempt_number == 3
    assert "it was the last of 3 allowed attempts" in (ended.status_message or "")


async def test_a_body_that_blocks_the_loop_for_longer_than_its_lease_is_not_run_twice(workers: WorkerProcesses) -> None:
    await workers.start_worker()
    await workers.start_worker()
    task = await workers.engine.submit("block_the_loop", {"seconds": 3 * killable_worker.LEASE})
    (ended,) = await workers.wait_for_all([task])
    assert (ended.phase, ended.attempt_number) == (Phase.COMPLETED, 1)
    assert len(workers.lines()) == 1


async def test_a_cancel_reaches_a_body_in_another_process(workers: WorkerProcesses) -> None:
    await workers.start_worker()
    task = await workers.engine.submit("wait_for_ever")
    await workers.wait_for_lines(1)
    await workers.engine.cancel(task.id)
    await workers.wait_for_lines(2)
    assert [line[1] for line in workers.lines()] == ["began", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_that_is_stopped_hands_its_tasks_to_another_at_once(
    workers: WorkerProcesses, number: signal.Signals
) -> None:
    first = await workers.start_worker()
    task = await workers.engine.submit("wait_for_ever")
    await workers.wait_for_lines(1)
    first.send_signal(number)
    assert await asyncio.wait_for(first.wait(), TIMEOUT) == 0
    released = await workers.engine.view(task.id)
    assert released.task.phase is Phase.QUEUED, "it does not wait for its lease to end"
    await workers.start_worker()
    await workers.wait_for_lines(3)
    history = await workers.store.history(task.id, Scope.everything(), now=clock.now())
    assert [entry.event for entry in history] == ["create", "claim", "release", "claim"]
    await workers.engine.cancel(task.id)


async def test_a_task_survives_the_death_of_its_process_just_after_a_direct_start(
    workers: WorkerProcesses,
) -> None:
    for tool, end in (("five_steps", Phase.COMPLETED), ("never_twice", Phase.FAILED)):
        gone = await workers.start_worker(tool)
        assert await gone.wait() == -signal.SIGKILL
        (task,) = (await workers.engine.list_tasks(tool=tool)).tasks
        assert task.phase is Phase.RUNNING, "it was started directly, so its lease has to expire"
        worker = await workers.start_worker()
        (ended,) = await workers.wait_for_all([task])
        assert ended.phase is end
        events = [entry.event for entry in await workers.engine.history(task.id)]
        if end is Phase.COMPLETED:
            assert events[:4] == [Event.CREATE, Event.CLAIM, Event.INTERRUPT, Event.CLAIM]
        else:
            assert events == [Event.CREATE, Event.CLAIM, Event.FAIL]
            assert "must not be run twice" in (ended.status_message or "")
        await workers.kill(worker)
    assert len([line for line in workers.lines() if line[1] == "began"]) <= 1
