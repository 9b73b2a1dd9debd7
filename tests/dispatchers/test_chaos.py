"""Everything at once, for real: workers that are killed again and again, and a database that crashes in the middle.

What happens is bound to the work that is done, not to time: the next fault waits until so many calls have succeeded
since the last, however slow the machine is.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from raincheck import open_store
from raincheck.client import TaskClient
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Task
from raincheck.errors import RaincheckError
from raincheck.stores.base import Store
from raincheck.stores.requests import TaskQuery
from raincheck.testing import check_invariants
from raincheck.testing.dispatcher_contract.processes import STEPS
from tests.support.dispatchers.chaos_site import ChaosSite, caller, chaos_site
from tests.support.postgres.server import PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(600)]

CALLERS = 16
TASKS_EACH = 6
TASKS = CALLERS * TASKS_EACH
STEP = 200
"""Milliseconds."""
WORKERS = 3
KILLS = 5


@dataclass
class Figures:
    """Counts of what happened during the test."""

    done: int = 0
    kills: int = 0
    failed_starts: int = 0
    crashes: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    slowest: float = 0.0


async def call_until_it_is_done(client: TaskClient, key: str, number: int, figures: Figures) -> None:
    """Call with the same key, so that it is the same task however often the call is repeated."""
    started_at = time.monotonic()
    while True:
        try:
            result = await client.call_tool("three_steps", {"number": number, "ms": STEP}, key=key)
        except (MCPError, RaincheckError) as error:
            figures.errors[f"{type(error).__name__}: {str(error)[:100]}"] += 1
            await asyncio.sleep(0.5)
            continue
        assert not result.is_error, result
        assert result.structured_content == {"result": [f"{name} {number}" for name in STEPS]}
        figures.done += 1
        figures.slowest = max(figures.slowest, time.monotonic() - started_at)
        return


async def call_many(url: str, name: str, figures: Figures) -> None:
    async with caller(url, name) as client:
        for number in range(TASKS_EACH):
            await call_until_it_is_done(client, f"{name}-{number}", number, figures)


async def supervise(site: ChaosSite, figures: Figures) -> None:
    """Keep the number of workers constant. A worker that starts while the database is unavailable ends at once."""
    while True:
        figures.failed_starts += len(site.workers) - len(site.alive)
        site.workers = site.alive
        while len(site.workers) < WORKERS:
            await site.work()
        await asyncio.sleep(0.2)


async def reach(figures: Figures, done: int) -> None:
    while figures.done < done:  # noqa: ASYNC110 - many callers update it
        await asyncio.sleep(0.05)


async def kill_workers(site: ChaosSite, figures: Figures) -> None:
    """Kill the worker that started a step last, each time that some more calls have succeeded."""
    for number in range(1, KILLS + 1):
        await reach(figures, number * TASKS // (KILLS + 2))
        await site.kill(await latest_at_work(site))
        figures.kills += 1


async def latest_at_work(site: ChaosSite) -> asyncio.subprocess.Process:
    while True:
        lines = await asyncio.to_thread(site.lines, "step")
        alive = {worker.pid: worker for worker in site.alive}
        for *_, pid in reversed(lines):
            if int(pid) in alive:
                return alive[int(pid)]
        await asyncio.sleep(0.05)


async def crash_once(server: PostgresServer, figures: Figures) -> None:
    await reach(figures, TASKS // 3)
    await asyncio.to_thread(server.restart, "immediate")
    figures.crashes += 1


async def all_tasks(store: Store) -> list[Task]:
    now = store.capabilities.clock
    assert now is not None
    page = await store.list_tasks(TaskQuery(Scope.everything()), now=now.now(), limit=1_000)
    assert page.next is None
    return list(page.tasks)


async def check_steps(store: Store, tasks: list[Task], runs: list[list[str]]) -> int:
    """A step that was recorded by one attempt must not have run in a later one. Returns how many ran more than once."""
    recorded: dict[tuple[str, str], int] = {}
    clock = store.capabilities.clock
    assert clock is not None
    for task in tasks:
        journal = await store.journal(task.id, Scope.everything(), now=clock.now())
        assert [step.name for step in journal.steps] == list(STEPS)
        recorded |= {(task.id, step.name): step.attempt for step in journal.steps}
    for _, task_id, name, attempt, _ in runs:
        by = recorded[task_id, name]
        assert int(attempt) <= by, f"step {name} of {task_id} was recorded by attempt {by}, and ran in {attempt} too"
    times = Counter((line[1], line[2], line[3]) for line in runs)
    assert max(times.values()) == 1, "no attempt runs a step twice"
    return len(runs) - len(recorded)


async def test_every_task_completes_and_no_recorded_step_runs_again_despite_killed_workers_and_a_database_crash(
    tmp_path: Path, own_postgres: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    figures = Figures()
    url = own_postgres.create_database("chaos")
    async with chaos_site(tmp_path, url) as site:
        servers = await asyncio.gather(site.serve(), site.serve())
        started_at = time.monotonic()
        supervising = asyncio.create_task(supervise(site, figures))
        try:
            async with asyncio.timeout(500), asyncio.TaskGroup() as group:
                group.create_task(kill_workers(site, figures))
                group.create_task(crash_once(own_postgres, figures))
                for number in range(CALLERS):
                    group.create_task(call_many(servers[number % 2], f"caller-{number}", figures))
            assert not supervising.done(), supervising
        finally:
            supervising.cancel()
            print(figures)  # noqa: T201 - shown if it fails
        seconds = time.monotonic() - started_at
        runs = await asyncio.to_thread(site.lines, "step")

        async with open_store(url) as store:
            tasks = await all_tasks(store)
            assert len(tasks) == TASKS, "each was created once, however often the call was repeated"
            assert {task.phase for task in tasks} == {Phase.COMPLETED}
            repeated = await check_steps(store, tasks, runs)
            await check_invariants(store)
        logs = await asyncio.to_thread(site.logs)

    report = {
        "seconds": round(seconds, 1),
        "workers killed": figures.kills,
        "crashes of the database": figures.crashes,
        "attempts": sum(task.attempt_number for task in tasks),
        "steps that were interrupted and ran again": repeated,
        "calls that were made again": figures.errors.total(),
        "slowest call, seconds": round(figures.slowest, 1),
        "tracebacks in the logs": logs.count("Traceback (most recent call last)"),
    }
    for name, value in report.items():
        record_property(name, value)
    print(report, dict(figures.errors))  # noqa: T201 - the purpose of the run
    assert figures.crashes == 1
    assert figures.kills == KILLS
