"""Many processes share one file without lock errors, and the work of one that is killed is finished by others."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from raincheck.clock import SystemClock
from raincheck.core.commands import Complete
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task, TaskId, Tool
from raincheck.core.values import encode
from raincheck.stores.base import Store
from raincheck.stores.commit import apply, sweep
from raincheck.stores.requests import ClaimRequest, TaskQuery
from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import FakeClock, StoreHarness, check_invariants
from raincheck.testing.harness import EVERYTHING
from tests.support import ROOT

pytestmark = pytest.mark.anyio

LOAD_PROCESS = ROOT / "tests/support/faults/load_process.py"
PROCESSES, TASKS = 8, 250


async def start(path: Path, name: str, tasks: int = TASKS) -> asyncio.subprocess.Process:
    arguments = [str(LOAD_PROCESS), str(path), name, str(tasks)]
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=2**24
    )


async def kill_in_the_middle(process: asyncio.subprocess.Process) -> int:
    """Wait until it has finished a good part of its work, then kill it. Returns how many tasks it had finished."""
    assert process.stdout is not None
    for _ in range(TASKS // 3):
        assert await process.stdout.readline()
    process.kill()
    rest, _ = await process.communicate()
    return TASKS // 3 + rest.count(b"\n")


async def all_tasks(store: Store) -> list[Task]:
    found: list[Task] = []
    position = None
    while True:
        page = await store.list_tasks(TaskQuery(EVERYTHING), now=SystemClock().now(), after=position, limit=1_000)
        found += page.tasks
        position = page.next
        if position is None:
            return found


async def finish_remaining_tasks(store: Store) -> None:
    """Finish the tasks of dead workers, as a sweeper and a worker do after their leases expired."""
    later = SystemClock().now() + timedelta(hours=1)
    await sweep(store, now=later, limit=1_000)
    request = ClaimRequest("hammer", frozenset({Tool("hammer")}), "successor", timedelta(minutes=1), 1_000)
    for task in await store.claim(request, now=later):
        await apply(store, task.id, EVERYTHING, Complete(task.attempt_number, encode("successor")), now=later)


@pytest.mark.timeout(300)
async def test_eight_processes_share_a_file_and_one_of_them_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    processes = [await start(path, f"process-{number}") for number in range(PROCESSES)]
    victim, *survivors = processes
    finished = await kill_in_the_middle(victim)
    outputs = await asyncio.gather(*(process.communicate() for process in survivors))

    # No lock, and no other error, reached a caller.
    assert [(process.returncode, errors.decode()) for process, (_, errors) in zip(survivors, outputs, strict=True)] == [
        (0, "")
    ] * (PROCESSES - 1)
    finished += sum(lines.count(b"\n") for lines, _ in outputs)

    store = SqliteStore(path)
    await store.open()
    await check_invariants(store)
    tasks = await all_tasks(store)
    completed = [task for task in tasks if task.phase is Phase.COMPLETED]
    assert len(tasks) >= (PROCESSES - 1) * TASKS
    # Every task reported as finished is finished. The killed process may not have reported its last ones.
    assert finished <= len(completed) <= finished + 8

    await finish_remaining_tasks(store)
    assert {task.phase for task in await all_tasks(store)} == {Phase.COMPLETED}
    await check_invariants(store)
    await store.close()
    assert not path.with_name("tasks.db-wal").exists()


async def test_closing_a_second_handle_in_one_process_loses_no_data_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    first = SqliteStore(path)
    await first.open()
    clock = FakeClock()
    tasks = [await StoreHarness(first, clock).create(id=TaskId("one"))]
    second = SqliteStore(path)
    await second.open()
    await second.close()
    # Another process opens and closes the file: if it took itself for the last one, it would delete the log.
    process = await start(path, "visitor", tasks=1)
    assert (await process.communicate())[1] == b""
    tasks.append(await StoreHarness(first, clock).create(id=TaskId("two")))
    assert len(await all_tasks(first)) == 3
    await first.close()
    await first.open()
    for task in tasks:
        assert await StoreHarness(first, clock).load(task) == task
    assert len(await all_tasks(first)) == 3
    await first.close()
