"""Gaps of Procrastinate that the dispatcher closes. Each test fails without the code that closes its gap."""

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
"""Seconds: longer than any notification takes, and shorter than any polling interval."""
LISTENING = """
SELECT pid, query FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN %'
"""

NOTIFY_TRIGGER = "procrastinate_jobs_notify_queue_job_inserted_v1"
"""The trigger that notifies workers of a new job."""


class Database:
    """A database, observed over a separate connection."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self.server, self.url = server, url
        self.name = url.rpartition("/")[2]

    def run(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, options="-c search_path=raincheck") as connection:
            cursor = connection.execute(sql.SQL(query), parameters or None)  # pyright: ignore[reportArgumentType] - of this file
            return cursor.fetchall() if cursor.description else []

    def listening(self) -> dict[int, str]:
        """Return the queries of the backends that listen, by process id."""
        return dict(self.run(LISTENING))

    def listens(self, prefix: str, other_than: set[int]) -> bool:
        """Return whether a backend other than these listens to a channel with this prefix."""
        return any(prefix in query for pid, query in self.listening().items() if pid not in other_than)

    def allow_connections(self, *, allowed: bool) -> None:
        query = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        self.server.run(query.format(sql.Identifier(self.name), sql.SQL("true" if allowed else "false")))

    def interrupt(self) -> None:
        """End all connections, and refuse new ones for a while: longer than a client that only reconnects tries."""
        self.allow_connections(allowed=False)
        terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        self.server.run(terminate, (self.name,))
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
    """Only notifications drive a worker."""
    monkeypatch.setattr(dispatcher, "FETCH_INTERVAL", NEVER)


class ExampleTools:
    """A toolbox, and a record of the attempts that its tools started."""

    def __init__(self) -> None:
        self.toolbox = Toolbox()
        self.started: list[tuple[str, int]] = []
        self.gate = asyncio.Event()

        @self.toolbox.tool
        async def quick(task: TaskContext) -> None:
            self.started.append((task.id, task.attempt))

        @self.toolbox.tool
        async def slow(task: TaskContext) -> None:
            self.started.append((task.id, task.attempt))
            await self.gate.wait()

    async def wait_for_starts(self, count: int) -> None:
        await eventually(lambda: len(self.started) >= count, f"{count} attempts started")


@asynccontextmanager
async def running_worker(
    url: str, tools: ExampleTools, settings: Settings = SETTINGS
) -> AsyncGenerator[tuple[Engine, Store]]:
    """Run a worker on its own handle, and yield an engine on another handle that only submits tasks."""
    async with open_store(url) as worker_store, open_store(url) as store:
        async with (
            Engine(worker_store, tools.toolbox, settings=settings),
            Engine(store, tools.toolbox, settings=settings, works=False) as caller,
        ):
            yield caller, store
        await check_invariants(store)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def run_one(caller: Engine, tool: str = "quick") -> Task:
    async with asyncio.timeout(PROMPTLY):
        task = await caller.submit(tool)
        return (await caller.wait(task.id)).task


@pytest.mark.usefixtures("no_polls")
async def test_jobs_are_notified_again_after_the_listening_connections_were_lost_and_it_is_logged(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, dispatcher.__name__)
    tools = ExampleTools()
    async with running_worker(database.url, tools) as (caller, _):
        await database.is_listened_to(other_than=set())
        assert (await run_one(caller)).phase is Phase.COMPLETED
        before = await asyncio.to_thread(database.listening)
        assert any("procrastinate" in query for query in before.values())
        assert any("raincheck." in query for query in before.values())
        await asyncio.to_thread(database.interrupt)
        await database.is_listened_to(other_than=set(before))
        for _ in range(3):
            assert (await run_one(caller)).phase is Phase.COMPLETED
    first, *_, last = (line for line in caplog.messages if "queue" in line)
    assert "unreachable" in first
    assert last == "the job queue is reachable again"


async def test_a_worker_without_a_free_slot_listens_again_after_the_database_was_unavailable(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker without a free slot fetches nothing, so it can't notice the lost connection that way."""
    monkeypatch.setattr(dispatcher, "HEARTBEAT_INTERVAL", 0.3)
    tools = ExampleTools()
    async with running_worker(database.url, tools, replace(SETTINGS, lease=30, concurrency=1)) as (caller, _):
        slow = await caller.submit("slow")
        await tools.wait_for_starts(1)
        before = await asyncio.to_thread(database.listening)
        await asyncio.to_thread(database.interrupt)
        await database.is_listened_to(other_than=set(before))
        tools.gate.set()
        async with asyncio.timeout(PROMPTLY):
            assert (await caller.wait(slow.id)).task.attempt_number == 1
        assert (await run_one(caller)).phase is Phase.COMPLETED


async def test_a_process_suspended_in_a_transaction_blocks_other_clients_only_briefly(
    database: Database,
) -> None:
    """The database keeps its locks, and its connection is intact: suspended machines answer when they wake."""
    tools = ExampleTools()
    async with open_store(database.url) as store, Engine(store, tools.toolbox, works=False) as caller:
        pipe = asyncio.subprocess.PIPE
        sleeper = await asyncio.create_subprocess_exec(
            sys.executable, stalled_transaction.__file__, database.url, stdout=pipe, env=environment()
        )
        assert sleeper.stdout is not None
        try:
            assert await asyncio.wait_for(sleeper.stdout.readline(), 30) == b"sleeps\n"
            async with asyncio.timeout(25):
                await caller.submit("quick")
        finally:
            sleeper.kill()
            await sleeper.wait()


async def test_a_job_without_a_notification_is_found_by_polling(database: Database) -> None:
    """No worker is notified of jobs that are queued while a listening connection is reopened."""
    tools = ExampleTools()
    async with running_worker(database.url, tools) as (caller, _):
        assert (await run_one(caller)).phase is Phase.COMPLETED
        await asyncio.to_thread(database.run, f"ALTER TABLE procrastinate_jobs DISABLE TRIGGER {NOTIFY_TRIGGER}")
        assert (await run_one(caller)).phase is Phase.COMPLETED


RETRY = "SELECT procrastinate_retry_job_v2(id, now(), NULL, NULL, NULL) FROM procrastinate_jobs"
COPY = """
    INSERT INTO procrastinate_jobs (task_name, priority, args, queue_name)
    SELECT task_name, priority, args, queue_name FROM procrastinate_jobs
"""


@pytest.mark.parametrize("again", [RETRY, COPY], ids=["retried", "copied"])
async def test_a_job_that_is_delivered_twice_starts_one_attempt(database: Database, again: str) -> None:
    """As when a live worker is considered dead because it was suspended or its machine is slow."""
    tools = ExampleTools()
    async with running_worker(database.url, tools) as (caller, _):
        task = await caller.submit("slow")
        await tools.wait_for_starts(1)
        assert [status for _, status in await asyncio.to_thread(database.jobs)] == ["doing"]
        await asyncio.to_thread(database.run, again)
        other = await caller.submit("quick")
        assert (await caller.wait(other.id)).task.phase is Phase.COMPLETED
        await eventually(lambda: not [job for job in database.jobs() if job[1] == "todo"], "all jobs were taken")
        tools.gate.set()
        ended = (await caller.wait(task.id)).task
        assert (ended.phase, ended.attempt_number) == (Phase.COMPLETED, 1)
        assert tools.started == [(task.id, 1), (other.id, 1)]
        events = [entry.event for entry in await caller.history(task.id)]
        assert events.count(Event.CLAIM) == 1
        await eventually(lambda: database.jobs() == [], "no job is left")


@pytest.mark.parametrize("is_registered", [True, False])
async def test_the_job_of_a_dead_worker_is_requeued(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_registered: bool
) -> None:
    """Also if the dead worker is deleted already: a starting worker deletes those without a heartbeat."""
    monkeypatch.setattr(dispatcher, "REAP_INTERVAL", 0.2)
    tools = ExampleTools()
    async with open_store(database.url) as store, Engine(store, tools.toolbox, works=False) as caller:
        task = await caller.submit("quick")
        # The job was only fetched: the task is queued, and no live worker has the job.
        take = """
            WITH dead AS (
                INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - INTERVAL '1 hour') RETURNING id
            )
            UPDATE procrastinate_jobs SET status = 'doing', worker_id = (SELECT id FROM dead)
        """
        await asyncio.to_thread(database.run, take)
        if not is_registered:
            await asyncio.to_thread(database.run, "DELETE FROM procrastinate_workers")
        async with running_worker(database.url, tools):
            async with asyncio.timeout(10):
                assert (await caller.wait(task.id)).task.phase is Phase.COMPLETED
        assert tools.started == [(task.id, 1)]


async def test_jobs_of_live_workers_are_not_requeued(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module, name, seconds in (
        (dispatcher, "HEARTBEAT_INTERVAL", 0.2),
        (dispatcher, "STALE_AFTER", 2.0),
        (dispatcher, "REAP_INTERVAL", 0.2),
        (dispatch, "RECOVER_INTERVAL", 0.2),
    ):
        monkeypatch.setattr(module, name, seconds)
    recoveries, recover = 0, dispatcher.ProcrastinateDispatcher.recover
    seen = asyncio.Event()

    async def count(instance: dispatcher.ProcrastinateDispatcher, now: datetime) -> datetime | None:
        nonlocal recoveries
        recoveries += 1
        if recoveries > 3 * dispatcher.STALE_AFTER / dispatcher.REAP_INTERVAL:
            seen.set()
        return await recover(instance, now)

    tools = ExampleTools()
    with caplog.at_level(logging.INFO, logger=dispatcher.__name__):
        async with running_worker(database.url, tools) as (caller, _):
            task = await caller.submit("slow")
            await tools.wait_for_starts(1)
            jobs = await asyncio.to_thread(database.jobs)
            monkeypatch.setattr(dispatcher.ProcrastinateDispatcher, "recover", count)
            # Both engines run recoveries: together they take longer than a worker without a heartbeat is tolerated.
            await seen.wait()
            assert await asyncio.to_thread(database.jobs) == jobs
            tools.gate.set()
            assert (await caller.wait(task.id)).task.attempt_number == 1
    assert "dead worker" not in caplog.text
