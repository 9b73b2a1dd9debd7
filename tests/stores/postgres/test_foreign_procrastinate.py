"""A Procrastinate that somebody else installed is used as it is, if it is new enough, and stays theirs."""

import asyncio

import pytest
from procrastinate.schema import SchemaManager
from psycopg.conninfo import conninfo_to_dict

from raincheck.dispatchers.procrastinate.schema import EXTERNALLY_MANAGED, REQUIRED_FUNCTIONS
from raincheck.errors import ConfigurationError
from raincheck.stores.factory import make_store, open_store
from raincheck.stores.postgres import parse_url
from raincheck.testing import FakeClock, StoreHarness
from tests.support.postgres.server import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def theirs(postgres_server: PostgresServer, database_url: str) -> str:
    """The URL of a store that is to use it."""
    database = database_url.rpartition("/")[2]
    script = f"CREATE SCHEMA theirs; SET search_path TO theirs; {SchemaManager.get_schema()}"
    postgres_server.run(script, database=database)
    return f"{database_url}?procrastinate_schema=theirs"


async def test_it_is_used_and_not_brought_up_to_date(theirs: str, postgres_server: PostgresServer) -> None:
    async with open_store(theirs) as store:
        await StoreHarness(store, FakeClock()).create()
    async with open_store(theirs):
        pass
    database = theirs.partition("?")[0].rpartition("/")[2]
    assert postgres_server.run("SELECT * FROM theirs.raincheck_procrastinate", database=database) == [
        (EXTERNALLY_MANAGED,)
    ]
    assert postgres_server.run("SELECT count(*) FROM theirs.procrastinate_jobs", database=database) == [(1,)]


async def test_one_that_is_too_old_is_refused_whatever_else_the_database_has(
    theirs: str, postgres_server: PostgresServer
) -> None:
    database = theirs.partition("?")[0].rpartition("/")[2]
    async with open_store(f"{theirs.partition('?')[0]}?schema=elsewhere"):
        # A newer one, in another schema.
        pass
    postgres_server.run(f"DROP FUNCTION theirs.{REQUIRED_FUNCTIONS[-1]}", database=database)
    store = await asyncio.to_thread(make_store, theirs)
    with pytest.raises(ConfigurationError, match=f"older Procrastinate, without {REQUIRED_FUNCTIONS[-1]}"):
        await store.open()


def test_what_the_url_says_of_connections_counts() -> None:
    said = conninfo_to_dict(parse_url("postgresql://host/db?application_name=mine&connect_timeout=3").conninfo)
    assert (said["application_name"], said["connect_timeout"]) == ("mine", "3")
    assert conninfo_to_dict(parse_url("postgresql://host/db").conninfo)["application_name"] == "raincheck"
