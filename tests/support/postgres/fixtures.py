"""Pytest fixtures that provide a PostgreSQL server and databases. A plugin, see tests/conftest.py."""

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from raincheck.stores.factory import make_store
from tests.support.postgres.server import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that all tests of this process share. Don't stop it: use `own_postgres` for that."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_database(postgres_server: PostgresServer) -> str:
    """The name of a database to copy, with the tables of raincheck and Procrastinate in their usual schema."""

    async def migrate(url: str) -> None:
        store = await asyncio.to_thread(make_store, url)
        await store.open()
        await store.close()

    url = postgres_server.create_database("migrated")
    with ThreadPoolExecutor(1) as thread:
        # In a thread, since an asynchronous fixture may be the first to request it.
        thread.submit(asyncio.run, migrate(url)).result()
    return "migrated"


@pytest.fixture
def database_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database for this test."""
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def store_url(postgres_server: PostgresServer, migrated_database: str) -> Iterator[str]:
    """The URL of an empty store for this test. Creating it takes 35 ms; migrating an empty database takes 150."""
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name, migrated_database)
    postgres_server.drop_database(name)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A separate server for this test, which may stop or kill it. It syncs its data like a production server."""
    with PostgresServer(fsync=True) as server:
        yield server
