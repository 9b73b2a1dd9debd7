"""Lost connections: writes that can't have been stored are retried; for the rest the caller gets an error."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncCursor

from raincheck.core.commands import Complete
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.policies import Quota
from raincheck.core.values import encode
from raincheck.dispatchers.procrastinate import ProcrastinateJobQueue
from raincheck.errors import QuotaExceeded, StoreUnavailable
from raincheck.stores.factory import open_store
from raincheck.stores.postgres import PostgresStore
from raincheck.stores.postgres.writes import CreateTransaction
from raincheck.stores.requests import ClaimRequest
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import EVERYTHING
from raincheck.testing.store_contract.direct_start import OFFER
from tests.support.postgres.server import PostgresServer

pytestmark = pytest.mark.anyio


class BreakingCursor(AsyncCursor[Any]):
    """Breaks its connection once, before or after a statement that starts with this text."""

    async def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        execute = cast("Callable[..., Awaitable[Any]]", super().execute)
        kind = type(self.connection)
        assert issubclass(kind, BreakingConnection)
        if not kind.breaks_at or not str(query).lstrip().startswith(kind.breaks_at):
            return await execute(query, *arguments, **options)
        kind.breaks_at = ""
        if kind.is_after:
            await execute(query, *arguments, **options)
        self.connection.pgconn.finish()
        raise psycopg.OperationalError("the connection is lost")


class BreakingConnection(AsyncConnection[Any]):
    breaks_at = ""
    is_after = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = BreakingCursor


def keyed(key: str | None) -> dict[str, Any]:
    """A task with a key is looked up first, so its creation is a transaction of several statements."""
    return {} if key is None else {"idempotency_key": key, "request_digest": "0" * 64}


def breaking() -> type[BreakingConnection]:
    return type("Breaking", (BreakingConnection,), {})


@pytest.mark.parametrize(
    ("statement", "key"),
    [("BEGIN", "k"), ("SELECT * FROM tasks", "k"), ("WITH admitted", "k"), ("WITH admitted", None)],
)
@pytest.mark.parametrize("is_after", [False, True])
async def test_a_write_that_was_not_committed_or_may_be_repeated_is_retried_and_stored_once(
    statement: str, key: str | None, is_after: bool, database_url: str, postgres_server: PostgresServer
) -> None:
    kind = breaking()
    store = PostgresStore(database_url, jobs=ProcrastinateJobQueue("raincheck"), connection_class=kind)
    await store.open()
    kind.breaks_at, kind.is_after = statement, is_after
    task = await StoreHarness(store, FakeClock()).create(**keyed(key))
    assert kind.breaks_at == "", "it broke"
    assert (await StoreHarness(store, FakeClock()).load(task)) == task
    await store.close()
    database = database_url.rpartition("/")[2]
    assert postgres_server.run("SELECT count(*) FROM raincheck.procrastinate_jobs", database=database) == [(1,)]


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("is_after", [False, True])
async def test_a_directly_started_task_starts_once_even_if_the_reply_was_lost(
    key: str | None, is_after: bool, database_url: str, postgres_server: PostgresServer
) -> None:
    kind = breaking()
    store = PostgresStore(database_url, jobs=ProcrastinateJobQueue("raincheck"), connection_class=kind)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    kind.breaks_at, kind.is_after = "WITH admitted", is_after
    task = await harness.create(claim=OFFER, **keyed(key))
    assert kind.breaks_at == "", "it broke"
    assert (task.phase, task.attempt_number, await harness.load(task)) == (Phase.RUNNING, 1, task)
    assert [entry.event for entry in await harness.history(task)] == [Event.CREATE, Event.CLAIM]
    await store.close()
    database = database_url.rpartition("/")[2]
    assert postgres_server.run("SELECT count(*) FROM raincheck.procrastinate_jobs", database=database) == [(0,)]


@pytest.mark.parametrize("quota", [Quota(live=1), Quota(created=1)], ids=str)
@pytest.mark.parametrize("offer", [None, OFFER], ids=["queued", "started"])
async def test_a_retried_create_does_not_exceed_the_quota_because_of_itself(
    offer: ClaimRequest | None, quota: Quota, database_url: str
) -> None:
    kind = breaking()
    store = PostgresStore(database_url, connection_class=kind)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    kind.breaks_at, kind.is_after = "WITH admitted", True
    task = await harness.create(claim=offer, quota=quota)
    assert kind.breaks_at == "", "it broke"
    assert await harness.load(task) == task
    kind.breaks_at, kind.is_after = "WITH admitted", False
    with pytest.raises(QuotaExceeded):
        await harness.create(claim=offer, quota=quota)
    await store.close()


async def test_a_retried_create_returns_the_task_as_another_worker_started_it(
    database_url: str,
) -> None:
    kind = breaking()
    store = PostgresStore(database_url, connection_class=kind)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    first = await harness.create()
    write = CreateTransaction(harness.creation(), Quota(), harness.clock.now(), OFFER)
    transactions = store._require_open()  # pyright: ignore[reportPrivateUsage]
    queued = await transactions.write(write, is_single=True)
    assert queued.phase is Phase.QUEUED
    assert {task.id for task in await harness.claim(holder="another", limit=2)} == {first.id, queued.id}
    # As if the reply had been lost, the same write runs again.
    returned = await transactions.write(write, is_single=True)
    assert returned.attempt is not None
    assert (returned.id, returned.attempt.lease.holder) == (queued.id, "another")
    await store.close()


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_connection_lost_during_commit_is_an_error_and_not_retried(is_after: bool, database_url: str) -> None:
    kind = breaking()
    store = PostgresStore(database_url, jobs=ProcrastinateJobQueue("raincheck"), connection_class=kind)
    await store.open()
    kind.breaks_at, kind.is_after = "COMMIT", is_after
    with pytest.raises(StoreUnavailable):
        await StoreHarness(store, FakeClock()).create(**keyed("k"))
    await store.close()
    async with open_store(database_url) as other:
        assert sum((await other.count_live(EVERYTHING)).values()) == int(is_after)


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_connection_lost_during_a_single_statement_is_an_error(is_after: bool, database_url: str) -> None:
    kind = breaking()
    store = PostgresStore(database_url, connection_class=kind)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    task = await harness.create_running()
    kind.breaks_at, kind.is_after = "WITH changed", is_after
    with pytest.raises(StoreUnavailable):
        await harness.apply(task, Complete(1, encode("done")))
    assert (await harness.load(task)).is_terminal == is_after
    await store.close()


async def test_a_read_whose_connection_is_lost_is_retried(database_url: str) -> None:
    kind = breaking()
    store = PostgresStore(database_url, connection_class=kind)
    await store.open()
    task = await StoreHarness(store, FakeClock()).create()
    kind.breaks_at = "SELECT * FROM tasks"
    assert await StoreHarness(store, FakeClock()).load(task) == task
    assert kind.breaks_at == "", "it broke"
    await store.close()
