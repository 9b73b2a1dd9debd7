"""A PostgreSQL database that is unavailable, restarted, read-only, full, newer, or used by another program."""

import asyncio
import time
from datetime import datetime, timedelta

import psycopg
import pytest

from raincheck.clock import SystemClock
from raincheck.core.commands import Cancel
from raincheck.errors import ConfigurationError, NotAStore, SchemaMismatch, StoreReadOnly, StoreUnavailable
from raincheck.stores.factory import make_store, open_store
from raincheck.stores.postgres import PostgresStore, notifications, parse_url
from raincheck.stores.requests import HeldAttempt
from raincheck.testing import FakeClock, StoreHarness, check_invariants
from raincheck.testing.harness import EVERYTHING
from tests.support.postgres.server import PostgresServer

pytestmark = pytest.mark.anyio

SECRET = "open-sesame"  # noqa: S105 - not a real password


async def test_an_unreachable_database_is_named_without_its_password(own_postgres: PostgresServer) -> None:
    url = own_postgres.url().replace("postgres@", f"postgres:{SECRET}@")
    await asyncio.to_thread(own_postgres.stop)
    with pytest.raises(StoreUnavailable, match="can't be reached: check that it runs") as caught:
        await PostgresStore(url).open()
    assert f"127.0.0.1:{own_postgres.port}/postgres" in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_a_missing_database_is_an_error_with_advice(postgres_server: PostgresServer) -> None:
    with pytest.raises(StoreUnavailable, match="the database does not exist"):
        await PostgresStore(postgres_server.url("nowhere")).open()


@pytest.mark.parametrize("url", ["postgresql://[::1/x", "postgresql://host/db?nonsense=1"])
async def test_an_invalid_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError, match="write postgresql://user:password@host") as caught:
        parse_url(f"{url}{'&' if '?' in url else '?'}password={SECRET}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("schema", ["", "x" * 41, "a%0Ab"])
async def test_an_invalid_schema_name_is_refused(schema: str) -> None:
    with pytest.raises(ConfigurationError, match="can't be the schema of a store"):
        parse_url(f"postgresql://host/db?schema={schema}")


async def test_the_tables_are_in_the_schemas_that_the_url_names(
    postgres_server: PostgresServer, database_url: str
) -> None:
    store = await asyncio.to_thread(make_store, f"{database_url}?schema=Ours&procrastinate_schema=jobs")
    await store.open()
    await StoreHarness(store, FakeClock()).create()
    await store.close()
    database = database_url.rpartition("/")[2]
    assert postgres_server.run('SELECT count(*) FROM "Ours".tasks', database=database) == [(1,)]
    assert postgres_server.run("SELECT count(*) FROM jobs.procrastinate_jobs", database=database) == [(1,)]


async def test_operations_continue_after_a_restart_of_the_database(own_postgres: PostgresServer) -> None:
    async with open_store(own_postgres.url()) as store:
        harness = StoreHarness(store, FakeClock())
        tasks = await asyncio.gather(*(harness.create() for _ in range(8)))
        await asyncio.to_thread(own_postgres.restart, "immediate")
        # Every connection of the pool is broken, and no caller notices.
        found = await asyncio.gather(*(harness.load(task) for task in tasks))
        assert found == tasks
        await asyncio.gather(*(harness.apply(task, Cancel("alice")) for task in tasks))
        await check_invariants(store)


async def test_a_listener_gets_changes_again_after_a_restart_of_the_database(own_postgres: PostgresServer) -> None:
    async with open_store(own_postgres.url()) as one, open_store(own_postgres.url()) as two:
        with one.listen() as feed:
            await anext(feed)
            await asyncio.to_thread(own_postgres.restart, "immediate")
            async with asyncio.timeout(20):
                assert await anext(feed) == frozenset(), "whatever happened meanwhile may have been missed"
                task = await StoreHarness(two, FakeClock()).create()
                while task.id not in await anext(feed):
                    pass


async def test_a_listener_gets_notifications_that_arrive_while_its_connection_is_checked(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "CHECK_INTERVAL", 0.0005)
    async with open_store(database_url) as one, open_store(database_url) as two:
        with one.listen() as feed:
            await anext(feed)
            harness = StoreHarness(two, FakeClock())
            expected = {(await harness.create()).id for _ in range(100)}
            async with asyncio.timeout(10):
                while expected:
                    expected -= await anext(feed)


async def test_the_wait_for_an_unavailable_database_is_limited_by_the_timeout(own_postgres: PostgresServer) -> None:
    store = PostgresStore(own_postgres.url(), timeout=0.5)
    await store.open()
    await asyncio.to_thread(own_postgres.stop)
    started_at = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no connection became free in time"):
        await store.count_live(EVERYTHING)
    assert time.monotonic() - started_at < 10, "the wait is limited"
    await asyncio.to_thread(own_postgres.start)
    async with asyncio.timeout(20):
        while True:
            try:
                assert await store.count_live(EVERYTHING) == {}
                break
            except StoreUnavailable:
                continue
    await store.close()


async def test_a_read_only_database_is_an_error_and_works_again_later(own_postgres: PostgresServer) -> None:
    async with open_store(own_postgres.url()) as store:
        harness = StoreHarness(store, FakeClock())
        task = await harness.create()
        await asyncio.to_thread(own_postgres.restart, "fast", {"default_transaction_read_only": "on"})
        assert await harness.load(task) == task
        with pytest.raises(StoreReadOnly, match="name the primary"):
            await harness.create()
        # A new primary, at the same address: no connection to the old one is left.
        await asyncio.to_thread(own_postgres.run, "ALTER SYSTEM SET default_transaction_read_only = off")
        await asyncio.to_thread(own_postgres.run, "SELECT pg_reload_conf()")
        await asyncio.to_thread(own_postgres.restart)
        await harness.create()


async def test_a_connection_to_a_former_primary_is_not_used_again(
    postgres_server: PostgresServer, database_url: str
) -> None:
    database = database_url.rpartition("/")[2]
    async with open_store(database_url):
        pass
    setting = f"ALTER DATABASE {database} SET default_transaction_read_only"
    postgres_server.run(f"{setting} = on")
    # Its connections are opened now, and stay read-only, as they do on a primary that became a standby.
    store = PostgresStore(database_url, connections=1)
    await store.open()
    await store.count_live(EVERYTHING)
    postgres_server.run(f"{setting} = off")
    harness = StoreHarness(store, FakeClock())
    with pytest.raises(StoreReadOnly):
        await harness.create()
    await harness.create()
    await store.close()


async def test_a_database_without_a_free_connection_is_an_error_with_advice(own_postgres: PostgresServer) -> None:
    settings = {"max_connections": 4, "superuser_reserved_connections": 0, "max_wal_senders": 0}
    await asyncio.to_thread(own_postgres.restart, "fast", settings)
    taken = [await psycopg.AsyncConnection.connect(own_postgres.url()) for _ in range(4)]
    with pytest.raises(StoreUnavailable, match="raise its max_connections"):
        await PostgresStore(own_postgres.url()).open()
    for connection in taken:
        await connection.close()


async def test_a_statement_that_the_database_cancelled_is_not_retried_endlessly(
    postgres_server: PostgresServer, database_url: str
) -> None:
    database = database_url.rpartition("/")[2]
    async with open_store(database_url) as store:
        await store.count_live(EVERYTHING)
    postgres_server.run(f"ALTER DATABASE {database} SET statement_timeout = '200ms'")
    store = PostgresStore(database_url, timeout=30)
    await store.open()
    async with await psycopg.AsyncConnection.connect(database_url) as session:
        await session.execute("LOCK TABLE raincheck.tasks IN ACCESS EXCLUSIVE MODE")
        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailable, match="cancelled the statement"):
                await store.count_live(EVERYTHING)
    await store.close()


async def test_statements_prepared_before_a_migration_are_prepared_again(
    postgres_server: PostgresServer, database_url: str
) -> None:
    store = PostgresStore(database_url, connections=1)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    task = await harness.create_running()
    for _ in range(20):
        await harness.load(task)
    database = database_url.rpartition("/")[2]
    postgres_server.run("ALTER TABLE raincheck.tasks ADD COLUMN newer BIGINT", database=database)
    assert (await harness.load(task)) == task
    await harness.apply(task, Cancel("alice"))
    await store.close()


async def test_leases_are_extended_on_connections_that_a_restart_broke(own_postgres: PostgresServer) -> None:
    async with open_store(own_postgres.url()) as store:
        harness = StoreHarness(store, FakeClock())
        task = await harness.create_running()
        await asyncio.gather(*(store.count_live(EVERYTHING) for _ in range(20)))
        await asyncio.to_thread(own_postgres.restart, "immediate")
        held = [HeldAttempt(task.id, task.attempt_number)]
        assert await store.extend_leases(held, until=harness.clock.now() + timedelta(seconds=60)) == frozenset()


async def test_a_newer_schema_is_left_alone(postgres_server: PostgresServer, database_url: str) -> None:
    async with open_store(database_url):
        pass
    database = database_url.rpartition("/")[2]
    postgres_server.run("INSERT INTO raincheck.raincheck_schema VALUES (99)", database=database)
    for store in (PostgresStore(database_url), PostgresStore(database_url).new_handle()):
        with pytest.raises(SchemaMismatch, match="its schema is version 99"):
            await store.open()


async def test_tables_of_another_program_are_left_untouched(postgres_server: PostgresServer, database_url: str) -> None:
    database = database_url.rpartition("/")[2]
    postgres_server.run("CREATE SCHEMA raincheck", database=database)
    postgres_server.run("CREATE TABLE raincheck.tasks (foreign_column INT)", database=database)
    with pytest.raises(NotAStore, match=r"name another one, by \?schema="):
        await PostgresStore(database_url).open()
    assert postgres_server.run("SELECT * FROM raincheck.tasks", database=database) == []


async def test_a_new_handle_creates_no_tables(postgres_server: PostgresServer, database_url: str) -> None:
    with pytest.raises(StoreUnavailable, match="raincheck migrate"):
        await PostgresStore(database_url).new_handle().open()
    database = database_url.rpartition("/")[2]
    assert postgres_server.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'raincheck'", database=database) == [
        (0,)
    ]


async def test_of_many_concurrent_opens_of_a_new_database_one_migrates(database_url: str) -> None:
    stores = await asyncio.gather(*(asyncio.to_thread(make_store, database_url) for _ in range(6)))
    await asyncio.gather(*(store.open() for store in stores))
    await StoreHarness(stores[0], FakeClock()).create()
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_user_without_the_right_to_create_tables_can_open_a_migrated_store(
    postgres_server: PostgresServer, database_url: str
) -> None:
    async with open_store(database_url):
        pass
    database = database_url.rpartition("/")[2]
    for statement in (
        "DROP ROLE IF EXISTS runs_only",
        "CREATE ROLE runs_only LOGIN",
        "GRANT USAGE ON SCHEMA raincheck TO runs_only",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA raincheck TO runs_only",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA raincheck TO runs_only",
    ):
        postgres_server.run(statement, database=database)
    try:
        async with open_store(database_url.replace("postgres@", "runs_only@")) as store:
            await StoreHarness(store, FakeClock()).create()
    finally:
        postgres_server.run("DROP OWNED BY runs_only", database=database)
        postgres_server.run("DROP ROLE runs_only", database=database)


async def test_leases_expire_by_the_databases_clock(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, truth = SystemClock.now, SystemClock()

    def wrong(clock: SystemClock) -> datetime:
        return right(clock) + timedelta(minutes=7)

    monkeypatch.setattr(SystemClock, "now", wrong)
    async with open_store(database_url) as store:
        clock = store.capabilities.clock
        assert clock is not None
        assert abs(clock.now() - right(truth)) < timedelta(seconds=5)
