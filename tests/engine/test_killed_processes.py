"""Processes that are killed, for real: nothing recorded is done again, and everything comes to its end."""

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
PATIENCE = 60.0
"""Seconds for anything at all, on a machine that has other things to do."""

ATTEMPTS = (Event.CLAIM, Event.INTERRUPT)


class Place:
    """A file with tasks, a diary, and worker processes that come and go."""

    def __init__(self, folder: Path, store: Store, engine: Engine) -> None:
        self.folder, self.store, self.engine = folder, store, engine
        self.diary = folder / "diary"
        self.workers: list[asyncio.subprocess.Process] = []

    async def start_worker(self, *tool: str) -> asyncio.subprocess.Process:
        arguments = (killable_worker.__file__, str(self.folder / "tasks.db"), str(self.diary), *tool)
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
        return [line.split() for line in self.diary.read_text().splitlines()] if self.diary.exists() else []

    async def wait_for_lines(self, count: int) -> None:
        """Until the workers have written so much. They are other processes, so there is nothing to wait on but time."""
        async with asyncio.timeout(PATIENCE):
            while len(await asyncio.to_thread(self.lines)) < count:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)

    async def wait_for_all(self, tasks: list[Task]) -> list[Task]:
        async with asyncio.timeout(PATIENCE):
            return [(await self.engine.wait(task.id)).task for task in tasks]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with open_store(tmp_path / "tasks.db") as store:
        async with Engine(store, killable_worker.toolbox, settings=killable_worker.SETTINGS, works=False) as engine:
            place = Place(tmp_path, store, engine)
            try:
                yield place
            finally:
                await place.stop_all()
        await check_invariants(store)


async def check_that_no_recorded_step_was_run_again(place: Place, tasks: list[Task]) -> Counter[tuple[str, str]]:
    """How often each step ran, after checking that none ran once it was recorded."""
    runs = [(line[0], line[1], int(line[2])) for line in place.lines()]
    recorded: dict[tuple[str, str], int] = {}
    for task in tasks:
        journal = await place.store.journal(task.id, Scope.everything(), now=clock.now())
        assert [step.name for step in journal.steps] == list(killable_worker.STEPS)
        recorded |= {(task.id, step.name): step.attempt for step in journal.steps}
    for task_id, name, attempt in runs:
        assert attempt <= recorded[task_id, name], f"step {name} of {task_id} ran in attempt {attempt} too"
    assert len(set(runs)) == len(runs), "no attempt ran a step twice"
    return Counter((task_id, name) for task_id, name, _ in runs)


@pytest.mark.parametrize("tool", ["five_steps", "five_steps_in_a_thread"])
async def test_a_process_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing_recorded(
    place: Place, tool: str
) -> None:
    seed = random.randrange(10_000)
    print("seed", seed)  # noqa: T201 - shown if it fails
    chance = random.Random(seed)
    tasks = [await place.engine.submit(tool) for _ in range(40)]
    for _ in range(5):
        worker = await place.start_worker()
        await place.wait_for_lines(len(place.lines()) + chance.randint(1, 30))
        await asyncio.sleep(chance.uniform(0, 0.05))
        await place.kill(worker)
    await place.start_worker()
    ended = await place.wait_for_all(tasks)

    assert {task.phase for task in ended} == {Phase.COMPLETED}
    runs = await check_that_no_recorded_step_was_run_again(place, ended)
    assert len(runs) == 40 * 5
    cut_off = sum(runs.values()) - 40 * 5
    assert cut_off <= 5 * killable_worker.SETTINGS.concurrency, "only what was under way may have run again"


async def test_what_a_dead_process_held_goes_on_in_another_within_the_lease_time(place: Place) -> None:
    held = [await place.engine.submit("five_steps", {"hangs_in": "count"}) for _ in range(CONCURRENCY)]
    victim = await place.start_worker()
    await place.wait_for_lines(3 * CONCURRENCY)
    # The victim has no slot left, so that the others run in the survivor, which is then known to be at work.
    others = [await place.engine.submit("five_steps") for _ in range(CONCURRENCY)]
    survivor = await place.start_worker()
    await place.wait_for_all(others)
    await place.kill(victim)
    killed_at = clock.now()
    ended = await place.wait_for_all([*held, *others])

    assert {task.phase for task in ended} == {Phase.COMPLETED}
    assert survivor.returncode is None
    runs = await check_that_no_recorded_step_was_run_again(place, ended)
    assert sum(runs.values()) == len(runs) + CONCURRENCY, "only the step that each was cut off in ran again"
    for task in held:
        history = await place.engine.history(task.id)
        assert [entry.event for entry in history if entry.event in ATTEMPTS] == [
            Event.CLAIM,
            Event.INTERRUPT,
            Event.CLAIM,
        ]
        # A sweep happens ten times in a lease; the rest is for a machine that is busy with other tests.
        assert history[-1].at - killed_at < timedelta(seconds=10 * killable_worker.LEASE)


async def test_a_task_that_kills_its_process_each_time_fails_after_its_attempts(place: Place) -> None:
    task = await place.engine.submit("poison")
    for number in range(1, 4):
        worker = await place.start_worker()
        async with asyncio.timeout(PATIENCE):
            assert await worker.wait() == -signal.SIGKILL
        assert len(place.lines()) == number
    await place.start_worker()
    (ended,) = await place.wait_for_all([task])
    assert ended.phase is Phase.FAILED
    assert ended.attempt_number == 3
    assert "it was the last of 3 allowed" in (ended.status_message or "")


async def test_a_body_that_blocks_the_loop_for_longer_than_its_lease_is_not_run_twice(place: Place) -> None:
    await place.start_worker()
    await place.start_worker()
    task = await place.engine.submit("block_the_loop", {"seconds": 3 * killable_worker.LEASE})
    (ended,) = await place.wait_for_all([task])
    assert (ended.phase, ended.attempt_number) == (Phase.COMPLETED, 1)
    assert len(place.lines()) == 1


async def test_a_cancel_reaches_a_body_in_another_process(place: Place) -> None:
    await place.start_worker()
    task = await place.engine.submit("wait_for_ever")
    await place.wait_for_lines(1)
    await place.engine.cancel(task.id)
    await place.wait_for_lines(2)
    assert [line[1] for line in place.lines()] == ["began", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_that_is_told_to_stop_hands_its_tasks_to_another_at_once(
    place: Place, number: signal.Signals
) -> None:
    first = await place.start_worker()
    task = await place.engine.submit("wait_for_ever")
    await place.wait_for_lines(1)
    first.send_signal(number)
    assert await asyncio.wait_for(first.wait(), PATIENCE) == 0
    released = await place.engine.view(task.id)
    assert released.task.phase is Phase.QUEUED, "it does not wait for its lease to end"
    await place.start_worker()
    await place.wait_for_lines(3)
    history = await place.store.history(task.id, Scope.everything(), now=clock.now())
    assert [entry.event for entry in history] == ["create", "claim", "release", "claim"]
    await place.engine.cancel(task.id)


async def test_a_process_that_is_gone_as_soon_as_it_began_its_own_task_does_not_take_the_task_along(
    place: Place,
) -> None:
    for tool, end in (("five_steps", Phase.COMPLETED), ("never_twice", Phase.FAILED)):
        gone = await place.start_worker(tool)
        assert await gone.wait() == -signal.SIGKILL
        (task,) = (await place.engine.list_tasks(tool=tool)).tasks
        assert task.phase is Phase.RUNNING, "it was begun where it was asked for, and so its lease has to run out"
        worker = await place.start_worker()
        (ended,) = await place.wait_for_all([task])
        assert ended.phase is end
        events = [entry.event for entry in await place.engine.history(task.id)]
        if end is Phase.COMPLETED:
            assert events[:4] == [Event.CREATE, Event.CLAIM, Event.INTERRUPT, Event.CLAIM]
        else:
            assert events == [Event.CREATE, Event.CLAIM, Event.FAIL]
            assert "must not be run twice" in (ended.status_message or "")
        await place.kill(worker)
    assert len([line for line in place.lines() if line[1] == "began"]) <= 1
