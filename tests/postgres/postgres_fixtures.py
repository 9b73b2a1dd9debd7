"""Fixtures that give tests a PostgreSQL. A plugin: `pytest_plugins = ["postgres_fixtures"]` in tests/conftest.py."""

import itertools
from collections.abc import Iterator

import pytest
from postgres_serving import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that all tests of this process share. Don't stop it: `own_postgres` is for that."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that is this test's own."""
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that is this test's own, to stop or to kill; it writes as safely as a real one."""
    with PostgresServer(fsync=True) as server:
        yield server
