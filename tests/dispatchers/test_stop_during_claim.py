"""A claim in progress is neither lost nor blocks other work, whatever happens to its job."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import psycopg
import pytest

from raincheck import open_store
from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.engine import Engine, Toolbox
from raincheck.engine.worker import dispatch
from raincheck.errors import IllegalTransition
from raincheck.testing.dispatcher_contract.processes import eventually

pytestmark = pytest.mark.anyio

NEVER_TWICE = RetryPolicy(on_interrupt=OnInterrupt.FAIL)


@pytest.fixture
async def session(database_url: str) -> AsyncIterator[psycopg.AsyncConnection[tuple[object, ...]]]:
    """A connection of another client, which can hold locks."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        yield connection


async def test_a_task_claimed_while_the_engine_stops_is_released_and_runs_elsewhere(
    database_url: str, session: psycopg.AsyncConnection[tuple[object, ...]]
) -> None:
    runs: list[int] = []
    toolbox = Toolbox()

    @toolbox.tool(retry=NEVER_TWICE)
    async def work() -> None:
        runs.append(1)

    async with open_store(database_url) as store:
        caller = Engine(store, toolbox, works=False)
        engine = Engine(store, toolbox)
        engine.start()
        # The claim gets as far as the served turns of its namespace, and waits there.
        await session.execute("LOCK TABLE raincheck.lines IN EXCLUSIVE MODE")
        task = await caller.submit("work")
        await eventually(lambda: _waits(database_url), "the claim waits")
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0.1)  # so that its jobs are released; the claim can't end before the lock does
        await session.rollback()
        await stopping
        released = await caller.task(task.id)
        assert released.attempt is None, "no worker has to wait for its lease"
        assert not runs
        async with Engine(store, toolbox) as other_engine:
            assert (await other_engine.wait(task.id)).task.phase is Phase.COMPLETED
    assert runs == [1]


def _waits(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchall() != [(0,)]


async def test_jobs_without_a_task_free_their_slots(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "UNSERVED_SECONDS", 3_600.0)
    toolbox = Toolbox()

    @toolbox.tool(concurrency=1)
    async def alone() -> None: ...

    async with open_store(database_url) as store, Engine(store, toolbox) as engine:
        caller = Engine(store, toolbox, works=False)
        for _ in range(5):
            # Their jobs are often fetched before they can be withdrawn.
            for task in await asyncio.gather(*(caller.submit("alone") for _ in range(6))):
                with suppress(IllegalTransition):
                    await caller.cancel(task.id)
            async with asyncio.timeout(15):
                await engine.result((await caller.submit("alone")).id)
