"""A store with tasks, and the operator's commands on it, with a fake clock."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from typer.testing import CliRunner, Result

from raincheck import open_store
from raincheck.cli.app import program
from raincheck.core.commands import Cancel, Complete, Fail, Park, Pause
from raincheck.core.owner import Scope
from raincheck.core.policies import Retention
from raincheck.core.records import Task
from raincheck.core.values import encode
from raincheck.stores.requests import TaskQuery
from raincheck.testing import FakeClock, StoreHarness

T = TypeVar("T")

STORE = "tasks.db"
START = datetime(2026, 1, 1, tzinfo=UTC)
LONG = Retention(keep=timedelta(days=400))


def run(*words: str, clock: FakeClock | None = None, answer: str | None = None) -> Result:
    """Run a command on the store in this folder."""
    store_option = [] if "--store" in words else ["--store", STORE]
    return CliRunner().invoke(program, [*words, *store_option], obj=clock or FakeClock(START), input=answer)


def run_json(*words: str, clock: FakeClock | None = None, exit_code: int = 0) -> Any:
    """Run a command with --json, and return its output."""
    done = run(*words, "--json", clock=clock)
    assert done.exit_code == exit_code, done.output
    return json.loads(done.stdout)


def lines(*words: str, clock: FakeClock | None = None, exit_code: int = 0) -> list[str]:
    """Run a command, and return its output lines."""
    done = run(*words, clock=clock)
    assert done.exit_code == exit_code, done.output
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def in_store(work: Callable[[StoreHarness], Awaitable[T]], clock: FakeClock | None = None, store: str = STORE) -> T:
    """Run a coroutine on the store in this folder."""

    async def main() -> T:
        async with open_store(store) as opened:
            return await work(StoreHarness(opened, clock or FakeClock(START)))

    return asyncio.run(main())


def load(task: Task | str, clock: FakeClock | None = None) -> Task:
    task_id = task if isinstance(task, str) else task.id

    async def work(harness: StoreHarness) -> Task:
        return await harness.store.load(task_id, Scope.everything(), now=harness.clock.now())  # type: ignore[arg-type] # a test's id

    return in_store(work, clock)


def stored_ids() -> set[str]:
    async def work(harness: StoreHarness) -> set[str]:
        page = await harness.store.list_tasks(TaskQuery(Scope.everything()), now=START, limit=1_000)
        return {task.id for task in page.tasks}

    return in_store(work)


async def create_task_in_each_phase(harness: StoreHarness) -> dict[str, Task]:
    """Create a task in every phase, a minute apart. Returns them by name, oldest first."""
    tasks: dict[str, Task] = {}

    async def ended(name: str, command: Complete | Fail | Cancel) -> None:
        tasks[name] = await harness.apply(await harness.create_running(retention=LONG), command)
        harness.clock.advance(60)

    await ended("completed", Complete(1, encode({"rows": 12})))
    await ended("error", Complete(1, encode({"oops": 1}), is_error=True))
    await ended("failed", Fail(1, encode({"code": -1, "message": "boom"}), "it went boom", retryable=False))
    await ended("cancelled", Cancel("alice", "no longer needed"))
    tasks["parked"] = await harness.apply(await harness.create_running(), Park(1, seen_signals=0))
    harness.clock.advance(60)
    tasks["running"] = await harness.create_running()
    harness.clock.advance(60)
    tasks["paused"] = await harness.apply(await harness.create(), Pause("alice"))
    harness.clock.advance(60)
    tasks["queued"] = await harness.create()
    return tasks
