"""A connection that breaks: what can't have been kept is done again, what may have been kept is told of."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncCursor

from raincheck.core.commands import Complete
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.limits import Quota
from raincheck.core.payload import encode
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
    """Breaks its connection once, before a statement that begins like this, or after it."""

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
    """A task with a key is looked for first, and so takes a transaction of several statements."""
    return {} if key is None else {"idempotency_key": key, "request_digest": "0" * 64}


def breaking() -> type[BreakingConnection]:
    return type("Breaking", (BreakingConnection,), {})


@pytest.mark.parametrize(
    ("statement", "key"),
    [("BEGIN", "k"), ("SELECT * FROM tasks", "k"), ("WITH admitted", "k"), ("WITH admitted", None)],
)
@pytest.mark.parametrize("is_after", [False, True])
async def test_what_breaks_before_it_is_committed_or_may_be_said_twice_is_done_again_and_kept_once(
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
async def test_a_task_that_is_begun_where_it_is_created_is_begun_once_though_the_answer_was_lost(
    key: str | None, is_after: bool, database_url: str, postgres_server: PostgresServer
) -> None:
    kind = breaking()
    store = PostgresStore(database_url, jobs=ProcrastinateJobQueue("raincheck"), connection_class=kind)
    await store.open()
    scene = StoreHarness(store, FakeClock())
    kind.breaks_at, kind.is_after = "WITH admitted", is_after
    task = await scene.create(claim=OFFER, **keyed(key))
    assert kind.breaks_at == "", "it broke"
    assert (task.phase, task.attempt_number, await scene.load(task)) == (Phase.RUNNING, 1, task)
    assert [entry.event for entry in await scene.history(task)] == [Event.CREATE, Event.CLAIM]
    await store.close()
    database = database_url.rpartition("/")[2]
    assert postgres_server.run("SELECT count(*) FROM raincheck.procrastinate_jobs", database=database) == [(0,)]


@pytest.mark.parametrize("quota", [Quota(live=1), Quota(created=1)], ids=str)
@pytest.mark.parametrize("offer", [None, OFFER], ids=["queued", "begun"])
async def test_a_task_whose_answer_was_lost_is_not_one_too_many_because_of_itself(
    offer: ClaimRequest | None, quota: Quota, database_url: str
) -> None:
    kind = breaking()
    store = PostgresStore(database_url, connection_class=kind)
    await store.open()
    scene = StoreHarness(store, FakeClock())
    kind.breaks_at, kind.is_after = "WITH admitted", True
    task = await scene.create(claim=offer, quota=quota)
    assert kind.breaks_at == "", "it broke"
    assert await scene.load(task) == task
    kind.breaks_at, kind.is_after = "WITH admitted", False
    with pytest.raises(QuotaExceeded):
        await scene.create(claim=offer, quota=quota)
    await store.close()


async def test_a_task_that_was_queued_and_then_begun_by_another_is_told_as_theirs_if_the_answer_was_lost(
    database_url: str,
) -> None:
    kind = breaking()
    store = PostgresStore(database_url, connection_class=kind)
    await store.open()
    scene = StoreHarness(store, FakeClock())
    first = await scene.create()
    writing = CreateTransaction(scene.creation(), Quota(), scene.clock.now(), OFFER)
    transactions = store._require_open()  # pyright: ignore[reportPrivateUsage]
    queued = await transactions.write(writing, is_single=True)
    assert queued.phase is Phase.QUEUED
    assert {task.id for task in await scene.claim(holder="another", limit=2)} == {first.id, queued.id}
    # As if the answer had been lost, it is said once more.
    told = await transactions.write(writing, is_single=True)
    assert told.attempt is not None
    assert (told.id, told.attempt.lease.holder) == (queued.id, "another")
    await store.close()


@pytest.mark.parametrize("is_after", [False, True])
async def test_what_breaks_while_it_is_committed_is_told_of_and_not_done_again(
    is_after: bool, database_url: str
) -> None:
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
async def test_a_single_statement_that_breaks_is_told_of_too(is_after: bool, database_url: str) -> None:
    kind = breaking()
    store = PostgresStore(database_url, connection_class=kind)
    await store.open()
    scene = StoreHarness(store, FakeClock())
    task = await scene.create_running()
    kind.breaks_at, kind.is_after = "WITH changed", is_after
    with pytest.raises(StoreUnavailable):
        await scene.apply(task, Complete(1, encode("done")))
    assert (await scene.load(task)).is_terminal == is_after
    await store.close()


async def test_a_read_that_breaks_is_done_again(database_url: str) -> None:
    kind = breaking()
    store = PostgresStore(database_url, connection_class=kind)
    await store.open()
    task = await StoreHarness(store, FakeClock()).create()
    kind.breaks_at = "SELECT * FROM tasks"
    assert await StoreHarness(store, FakeClock()).load(task) == task
    assert kind.breaks_at == "", "it broke"
    await store.close()
