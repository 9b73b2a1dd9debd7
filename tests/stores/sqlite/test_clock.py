"""The time of a file does not run backwards when the machine's clock is set back, nor when its processes restart."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from raincheck.clock import CLOCK_STEP, SteadyClock
from raincheck.core.lifecycle import Phase
from raincheck.engine import Engine, Settings, TaskContext, Toolbox
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite import store as module

pytestmark = pytest.mark.anyio


class Machine:
    """A machine whose clock a test sets; it runs on by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set_by = timedelta(0)
        monkeypatch.setattr(module, "SteadyClock", lambda: SteadyClock(self._read))

    def _read(self) -> datetime:
        return datetime.now(UTC) + self.set_by  # noqa: TID251 - this is the machine's clock


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


QUICK = Settings(lease=0.6, park_after=0, poll_interval=0.05, grace=0)


@asynccontextmanager
async def running(path: Path, toolbox: Toolbox) -> AsyncGenerator[Engine]:
    store = SqliteStore(path)
    await store.open()
    try:
        async with Engine(store, toolbox, settings=QUICK) as engine:
            yield engine
    finally:
        await store.close()


async def test_a_sleep_takes_as_long_as_before_if_the_clock_is_set_back_meanwhile(
    machine: Machine, tmp_path: Path
) -> None:
    toolbox = Toolbox()

    @toolbox.tool
    async def nap(task: TaskContext) -> str:
        await task.sleep(1)
        return "woke up"

    async with running(tmp_path / "tasks.db", toolbox) as engine:
        task = await engine.submit("nap")
        await engine.wait(task.id, until=lambda task: task.phase is Phase.PARKED)
        machine.set_by = timedelta(hours=-1)
        ended = await engine.wait(task.id)
    assert ended.outcome == b'"woke up"'
    assert ended.task.updated_at >= task.created_at + timedelta(seconds=1)


async def test_a_task_resumes_after_its_lease_if_its_process_dies_and_the_clock_is_set_back(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hanging, working, left = Toolbox(), Toolbox(), tmp_path / "left.db"

    @hanging.tool(name="work")
    async def hang() -> None:
        await asyncio.Event().wait()

    @working.tool
    async def work() -> str:
        return "done by another process"

    async with running(tmp_path / "tasks.db", hanging) as engine:
        task = await engine.submit("work")
        started = await engine.wait(task.id, until=lambda task: task.phase is Phase.RUNNING)
        machine.set_by = timedelta(hours=-1)
        while True:
            # The lease is extended after the clock was set back, too.
            extended = (await engine.view(task.id)).task
            if extended.attempt and started.task.attempt and extended.attempt.lease != started.task.attempt.lease:
                break
            await asyncio.sleep(0.01)
        # This is what a process leaves that is killed now.
        with (
            closing(sqlite3.connect(tmp_path / "tasks.db")) as source,
            closing(sqlite3.connect(left)) as copy,
        ):
            source.backup(copy)
    async with running(left, working) as engine:
        ended = await engine.wait(task.id)
    assert ended.outcome == b'"done by another process"'
    assert "tasks continue with a clock that is 3600 s ahead" in caplog.text


async def test_processes_on_one_file_agree_on_the_time_after_the_clock_is_set_back(
    machine: Machine, tmp_path: Path
) -> None:
    here, elsewhere = SqliteStore(tmp_path / "tasks.db"), SqliteStore(tmp_path / "tasks.db")
    await here.open()
    before = time_of(here)
    machine.set_by = timedelta(hours=-1)
    await elsewhere.open()
    # Idle so far, so that the file knows nothing. Each sweeps.
    for store in (here, elsewhere):
        await store.list_overdue(now=time_of(store), limit=1)
    assert time_of(elsewhere) >= before - CLOCK_STEP
    assert abs(time_of(here) - time_of(elsewhere)) <= 2 * CLOCK_STEP
    for store in (here, elsewhere):
        await store.close()


def time_of(store: SqliteStore) -> datetime:
    assert store.capabilities.clock is not None
    return store.capabilities.clock.now()
