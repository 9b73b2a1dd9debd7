"""What Procrastinate leaves open, and is closed here. Each of these fails without the line that closes it."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

from raincheck import open_store
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.records import Task
from raincheck.dispatchers.procrastinate import dispatcher
from raincheck.engine import Engine, Settings, TaskContext, Toolbox
from raincheck.engine.worker import dispatch
from raincheck.stores.base import Store
from raincheck.testing import check_invariants
from raincheck.testing.dispatcher_contract.processes import eventually
from tests.support.dispatchers import stalled_transaction
from tests.support.postgres.server import PostgresServer

pytestmark = pytest.mark.anyio

NEVER = 3_600.0
SETTINGS = Settings(lease=2, park_after=0.05, grace=0.5, poll_interval=NEVER)
PROMPTLY = 5.0
"""Seconds. Nothing that is told takes that long, and nothing that is looked for comes within it."""
LISTENING = """
SELECT pid, query FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN %'
"""

TELLING = "procrastinate_jobs_notify_queue_job_inserted_v1"
"""The trigger that tells workers of a new job."""


class Database:
    """A database, seen from beside."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self.server, self.url = server, url
        self.name = url.rpartition("/")[2]

    def run(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, options="-c search_path=raincheck") as connection:
            cursor = connection.execute(sql.SQL(query), parameters or None)  # pyright: ignore[reportArgumentType] - ours
            return cursor.fetchall() if cursor.description else []

    def listening(self) -> dict[int, str]:
        """The backends that listen: what to."""
        return dict(self.run(LISTENING))

    def listens(self, beginning: str, other_than: set[int]) -> bool:
        """Whether somebody listens to such a channel who did not before."""
        return any(beginning in query for pid, query in self.listening().items() if pid not in other_than)

    def allow_connections(self, *, allowed: bool) -> None:
        query = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        self.server.run(query.format(sql.Identifier(self.name), sql.SQL("true" if allowed else "false")))

    def be_away(self) -> None:
        """End all connections; for a moment there are none to be had. What only makes them anew gives up."""
        self.allow_connections(allowed=False)
        ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        self.server.run(ending, (self.name,))
        time.sleep(1.5)
        self.allow_connections(allowed=True)

    async def is_listened_to(self, other_than: set[int]) -> None:
        await eventually(lambda: self.listens("procrastinate", other_than), "a worker of Procrastinate listens again")
        await eventually(lambda: self.listens("raincheck.", other_than), "the store listens again")

    def jobs(self) -> list[tuple[int, str]]:
        return self.run("SELECT id, status::text FROM procrastinate_jobs ORDER BY id")


@pytest.fixture
def database(postgres_server: PostgresServer, database_url: str) -> Iterator[Database]:
    database = Database(postgres_server, database_url)
    yield database
    database.allow_connections(allowed=True)


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is told drives a worker."""
    monkeypatch.setattr(dispatcher, "FETCH_INTERVAL", NEVER)


class Work:
    """A toolbox, and what came of it."""

    def __init__(self) -> None:
        self.toolbox = Toolbox()
        self.began: list[tuple[str, int]] = []
        self.gate = asyncio.Event()

        @self.toolbox.tool
        async def quick(task: TaskContext) -> None:
            self.began.append((task.id, task.attempt))

        @self.toolbox.tool
        async def slow(task: TaskContext) -> None:
            self.began.append((task.id, task.attempt))
            await self.gate.wait()

    async def has_begun(self, count: int) -> None:
        await eventually(lambda: len(self.began) >= count, f"{count} attempts began")


@asynccontextmanager
async def at_work(url: str, work: Work, settings: Settings = SETTINGS) -> AsyncGenerator[tuple[Engine, Store]]:
    """A worker on a handle of its own, and an engine on another that asks."""
    async with open_store(url) as theirs, open_store(url) as ours:
        async with (
            Engine(theirs, work.toolbox, settings=settings),
            Engine(ours, work.toolbox, settings=settings, works=False) as asking,
        ):
            yield asking, ours
        await check_invariants(ours)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def run_one(asking: Engine, tool: str = "quick") -> Task:
    async with asyncio.timeout(PROMPTLY):
        task = await asking.submit(tool)
        return (await asking.wait(task.id)).task


@pytest.mark.usefixtures("no_polls")
async def test_jobs_are_told_promptly_after_the_connections_that_listen_were_lost_and_so_is_an_operator(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, dispatcher.__name__)
    work = Work()
    async with at_work(database.url, work) as (asking, _):
        await database.is_listened_to(other_than=set())
        assert (await run_one(asking)).phase is Phase.COMPLETED
        before = await asyncio.to_thread(database.listening)
        assert any("procrastinate" in query for query in before.values())
        assert any("raincheck." in query for query in before.values())
        await asyncio.to_thread(database.be_away)
        await database.is_listened_to(other_than=set(before))
        for _ in range(3):
            assert (await run_one(asking)).phase is Phase.COMPLETED
    first, *_, last = (line for line in caplog.messages if "queue" in line)
    assert "can't be reached" in first
    assert last == "the queue is reached again"


async def test_a_worker_with_no_free_place_listens_again_after_the_database_was_away(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fetches nothing, so that it is not by that that it notices."""
    monkeypatch.setattr(dispatcher, "HEARTBEAT_INTERVAL", 0.3)
    work = Work()
    async with at_work(database.url, work, replace(SETTINGS, lease=30, concurrency=1)) as (asking, _):
        slow = await asking.submit("slow")
        await work.has_begun(1)
        before = await asyncio.to_thread(database.listening)
        await asyncio.to_thread(database.be_away)
        await database.is_listened_to(other_than=set(before))
        work.gate.set()
        async with asyncio.timeout(PROMPTLY):
            assert (await asking.wait(slow.id)).task.attempt_number == 1
        assert (await run_one(asking)).phase is Phase.COMPLETED


async def test_a_process_that_sleeps_in_the_middle_of_a_transaction_holds_up_nobody_for_long(
    database: Database,
) -> None:
    """The database keeps its locks, and its connection is well: machines that are suspended answer when they wake."""
    work = Work()
    async with open_store(database.url) as store, Engine(store, work.toolbox, works=False) as asking:
        pipe = asyncio.subprocess.PIPE
        sleeper = await asyncio.create_subprocess_exec(
            sys.executable, stalled_transaction.__file__, database.url, stdout=pipe, env=environment()
        )
        assert sleeper.stdout is not None
        try:
            assert await asyncio.wait_for(sleeper.stdout.readline(), 30) == b"sleeps\n"
            async with asyncio.timeout(25):
                await asking.submit("quick")
        finally:
            sleeper.kill()
            await sleeper.wait()


async def test_a_job_that_nobody_was_told_of_is_found_all_the_same(database: Database) -> None:
    """What is queued while a connection that listens is made anew is told to nobody."""
    work = Work()
    async with at_work(database.url, work) as (asking, _):
        assert (await run_one(asking)).phase is Phase.COMPLETED
        await asyncio.to_thread(database.run, f"ALTER TABLE procrastinate_jobs DISABLE TRIGGER {TELLING}")
        assert (await run_one(asking)).phase is Phase.COMPLETED


RETRY = "SELECT procrastinate_retry_job_v2(id, now(), NULL, NULL, NULL) FROM procrastinate_jobs"
COPY = """
    INSERT INTO procrastinate_jobs (task_name, priority, args, queue_name)
    SELECT task_name, priority, args, queue_name FROM procrastinate_jobs
"""


@pytest.mark.parametrize("again", [RETRY, COPY], ids=["given back", "queued again"])
async def test_a_job_that_is_delivered_twice_begins_one_attempt(database: Database, again: str) -> None:
    """As when its worker is taken for dead, and is not: it sleeps, or its machine is slow."""
    work = Work()
    async with at_work(database.url, work) as (asking, _):
        task = await asking.submit("slow")
        await work.has_begun(1)
        assert [status for _, status in await asyncio.to_thread(database.jobs)] == ["doing"]
        await asyncio.to_thread(database.run, again)
        other = await asking.submit("quick")
        assert (await asking.wait(other.id)).task.phase is Phase.COMPLETED
        await eventually(lambda: not [job for job in database.jobs() if job[1] == "todo"], "all jobs were taken")
        work.gate.set()
        ended = (await asking.wait(task.id)).task
        assert (ended.phase, ended.attempt_number) == (Phase.COMPLETED, 1)
        assert work.began == [(task.id, 1), (other.id, 1)]
        events = [entry.event for entry in await asking.history(task.id)]
        assert events.count(Event.CLAIM) == 1
        await eventually(lambda: database.jobs() == [], "no job is left")


@pytest.mark.parametrize("is_registered", [True, False])
async def test_the_job_of_a_dead_worker_is_given_to_another(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_registered: bool
) -> None:
    """Also if the dead one is forgotten already: whoever starts removes workers without a sign of life."""
    monkeypatch.setattr(dispatcher, "REAP_INTERVAL", 0.2)
    work = Work()
    async with open_store(database.url) as store, Engine(store, work.toolbox, works=False) as asking:
        task = await asking.submit("quick")
        # Fetched, and nothing more: the task is queued, and its job is nobody's.
        take = """
            WITH dead AS (
                INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - INTERVAL '1 hour') RETURNING id
            )
            UPDATE procrastinate_jobs SET status = 'doing', worker_id = (SELECT id FROM dead)
        """
        await asyncio.to_thread(database.run, take)
        if not is_registered:
            await asyncio.to_thread(database.run, "DELETE FROM procrastinate_workers")
        async with at_work(database.url, work):
            async with asyncio.timeout(10):
                assert (await asking.wait(task.id)).task.phase is Phase.COMPLETED
        assert work.began == [(task.id, 1)]


async def test_the_jobs_of_workers_that_live_are_left_to_them(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for where, name, seconds in (
        (dispatcher, "HEARTBEAT_INTERVAL", 0.2),
        (dispatcher, "STALE_AFTER", 2.0),
        (dispatcher, "REAP_INTERVAL", 0.2),
        (dispatch, "RECOVER_INTERVAL", 0.2),
    ):
        monkeypatch.setattr(where, name, seconds)
    looks, reap = 0, dispatcher.ProcrastinateDispatcher.recover
    seen = asyncio.Event()

    async def count(one: dispatcher.ProcrastinateDispatcher, now: datetime) -> datetime | None:
        nonlocal looks
        looks += 1
        if looks > 3 * dispatcher.STALE_AFTER / dispatcher.REAP_INTERVAL:
            seen.set()
        return await reap(one, now)

    work = Work()
    with caplog.at_level(logging.INFO, logger=dispatcher.__name__):
        async with at_work(database.url, work) as (asking, _):
            task = await asking.submit("slow")
            await work.has_begun(1)
            jobs = await asyncio.to_thread(database.jobs)
            monkeypatch.setattr(dispatcher.ProcrastinateDispatcher, "recover", count)
            # Both engines look: so it takes longer than a worker without a sign of life would be waited for.
            await seen.wait()
            assert await asyncio.to_thread(database.jobs) == jobs
            work.gate.set()
            assert (await asking.wait(task.id)).task.attempt_number == 1
    assert "dead worker" not in caplog.text
