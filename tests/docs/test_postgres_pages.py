"""The PostgreSQL pages are right: statements run, privileges suffice, and connection counts match."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from raincheck import Engine, TaskContext, Toolbox, open_store
from raincheck.dispatchers.procrastinate import dispatcher
from raincheck.errors import StoreReadOnly
from raincheck.stores.postgres import parse_url
from raincheck.stores.postgres.store import MAX_CONNECTIONS
from tests.support.docs.pages import ROOT, text_of
from tests.support.postgres.server import PostgresServer

pytestmark = pytest.mark.anyio

GUIDE = text_of(ROOT / "docs/howto/deploy-many-machines.md")
STORE = text_of(ROOT / "docs/stores/postgres.md")


def statements_of(page: str) -> list[str]:
    return re.findall(r"^```sql\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


ROLES, GRANTS, MONITOR = statements_of(STORE)
NAMES = ("raincheck_owner", "raincheck_app", "raincheck_monitor")


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}"))


@pytest.fixture
def roles(postgres_server: PostgresServer, database_url: str) -> Iterator[str]:
    """Yield the URL of a database. Drop the roles at the end, since they belong to the server."""
    database = urlsplit(database_url).path[1:]
    yield database_url
    for name in NAMES:
        if postgres_server.run("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,), database=database):
            postgres_server.run(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}", database=database)  # pyright: ignore[reportArgumentType] - one of three names


toolbox = Toolbox()


@toolbox.tool
async def greet(name: str, task: TaskContext) -> str:
    await task.artifact("draft", name)
    return await task.step("greet", make_greeting, name)


@toolbox.tool
async def ask(task: TaskContext) -> str:
    return (await task.elicit("Shall I?", {"type": "object", "properties": {}})).action


async def make_greeting(name: str) -> str:
    return f"hello, {name}"


async def greets(url: str) -> None:
    async with open_store(url) as store, Engine(store, toolbox) as engine:
        task = await engine.submit("greet", {"name": "Ada"})
        assert await asyncio.wait_for(engine.result(task.id), 30) == "hello, Ada"
        asks = await engine.submit("ask", {})
        async with asyncio.timeout(30):
            while not (await engine.view(asks.id)).inputs:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await engine.cancel(asks.id)
        await store.prune(now=task.created_at, limit=1)


def bounds() -> list[tuple[int, int]]:
    """Return the documented maximum and minimum connections of a server and of a worker."""
    found = re.findall(r"^\| .*\| \*\*(\d+)\*\* \| \*\*(\d+)\*\* \|$", GUIDE, re.MULTILINE)
    return [(int(most), int(least)) for most, least in found]


def run(url: str, script: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script.encode())


async def migrate(url: str) -> None:
    async with open_store(url):
        pass


async def test_privileges_granted_before_the_tables_exist_suffice(roles: str) -> None:
    await asyncio.to_thread(run, roles, ROLES)
    with pytest.raises(StoreReadOnly, match="raincheck migrate"):
        await migrate(as_role(roles, "raincheck_app"))
    await migrate(as_role(roles, "raincheck_owner"))
    await greets(as_role(roles, "raincheck_app"))
    await asyncio.to_thread(run, roles, MONITOR)
    for statement in statements_of(GUIDE):
        await asyncio.to_thread(run, as_role(roles, "raincheck_monitor"), statement)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await asyncio.to_thread(run, as_role(roles, "raincheck_monitor"), "SELECT * FROM raincheck.payloads")


async def test_privileges_granted_after_the_tables_exist_suffice(roles: str) -> None:
    before, _, _ = ROLES.partition("ALTER DEFAULT")
    await asyncio.to_thread(run, roles, before)
    await migrate(as_role(roles, "raincheck_owner"))
    await asyncio.to_thread(run, roles, GRANTS)
    await greets(as_role(roles, "raincheck_app"))


async def test_the_monitoring_statements_run_on_a_store_in_use(database_url: str) -> None:
    await greets(database_url)
    assert len(statements_of(GUIDE)) == 7
    for statement in statements_of(GUIDE):
        await asyncio.to_thread(run, database_url, statement)


async def test_a_process_opens_the_documented_number_of_connections(
    postgres_server: PostgresServer, database_url: str
) -> None:
    name = urlsplit(database_url).path[1:]

    async def wait_for_connections(least: int, most: int) -> None:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        async with asyncio.timeout(30):
            while not least <= (await asyncio.to_thread(postgres_server.run, query, (name,)))[0][0] <= most:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    for works, (most, least) in zip((False, True), bounds(), strict=True):
        async with open_store(database_url) as store, Engine(store, toolbox, works=works):
            await wait_for_connections(least, most)
            await asyncio.sleep(0.5)
            await wait_for_connections(least, most)
        await wait_for_connections(0, 0)


def test_the_documented_connection_limit_is_the_one_in_the_code() -> None:
    (fetching,) = re.findall(r"max_size=(\d+)", Path(dispatcher.__file__).read_text(encoding="utf-8"))
    server = MAX_CONNECTIONS + 2
    assert [most for most, _ in bounds()] == [server, server + int(fetching) + 1]


def test_the_urls_on_the_pages_are_valid() -> None:
    urls = re.findall(r"postgresql://\S+/\w+\S*$", GUIDE + STORE, re.MULTILINE)
    assert len(urls) >= 3
    for url in urls:
        parse_url(url.rstrip("`"))
