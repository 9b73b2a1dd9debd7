"""A store with tasks in it, and the commands that an operator has for it, on a clock that goes when told."""

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
from raincheck.core.payload import encode
from raincheck.core.policies import Retention
from raincheck.core.records import Task
from raincheck.stores.requests import TaskQuery
from raincheck.testing import FakeClock, StoreHarness

T = TypeVar("T")

STORE = "tasks.db"
START = datetime(2026, 1, 1, tzinfo=UTC)
LONG = Retention(keep=timedelta(days=400))


def run(*words: str, clock: FakeClock | None = None, answer: str | None = None) -> Result:
    """What a command does to the store in this folder."""
    known = [] if "--store" in words else ["--store", STORE]
    return CliRunner().invoke(program, [*words, *known], obj=clock or FakeClock(START), input=answer)


def told(*words: str, clock: FakeClock | None = None, ends_with: int = 0) -> Any:
    """What a command says as JSON."""
    done = run(*words, "--json", clock=clock)
    assert done.exit_code == ends_with, done.output
    return json.loads(done.stdout)


def lines(*words: str, clock: FakeClock | None = None, ends_with: int = 0) -> list[str]:
    """What a command prints."""
    done = run(*words, clock=clock)
    assert done.exit_code == ends_with, done.output
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def in_store(work: Callable[[StoreHarness], Awaitable[T]], clock: FakeClock | None = None, store: str = STORE) -> T:
    """Do something to the store in this folder."""

    async def main() -> T:
        async with open_store(store) as opened:
            return await work(StoreHarness(opened, clock or FakeClock(START)))

    return asyncio.run(main())


def load(task: Task | str, clock: FakeClock | None = None) -> Task:
    task_id = task if isinstance(task, str) else task.id

    async def work(scene: StoreHarness) -> Task:
        return await scene.store.load(task_id, Scope.everything(), now=scene.clock.now())  # type: ignore[arg-type] # a test's id

    return in_store(work, clock)


def ids_kept() -> set[str]:
    async def work(scene: StoreHarness) -> set[str]:
        page = await scene.store.list_tasks(TaskQuery(Scope.everything()), now=START, limit=1_000)
        return {task.id for task in page.tasks}

    return in_store(work)


async def one_of_each(scene: StoreHarness) -> dict[str, Task]:
    """A task in every phase, each created a minute after the one before: by name, oldest first."""
    tasks: dict[str, Task] = {}

    async def ended(name: str, command: Complete | Fail | Cancel) -> None:
        tasks[name] = await scene.apply(await scene.create_running(retention=LONG), command)
        scene.clock.advance(60)

    await ended("completed", Complete(1, encode({"rows": 12})))
    await ended("error", Complete(1, encode({"oops": 1}), is_error=True))
    await ended("failed", Fail(1, encode({"code": -1, "message": "boom"}), "it went boom", retryable=False))
    await ended("cancelled", Cancel("alice", "no longer needed"))
    tasks["parked"] = await scene.apply(await scene.create_running(), Park(1, seen_signals=0))
    scene.clock.advance(60)
    tasks["running"] = await scene.create_running()
    scene.clock.advance(60)
    tasks["paused"] = await scene.apply(await scene.create(), Pause("alice"))
    scene.clock.advance(60)
    tasks["queued"] = await scene.create()
    return tasks
