"""A Procrastinate that another program installed is used if it is new enough, and never migrated."""

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
def foreign(postgres_server: PostgresServer, database_url: str) -> str:
    """Return the URL of a store that uses the foreign Procrastinate."""
    database = database_url.rpartition("/")[2]
    script = f"CREATE SCHEMA other_program; SET search_path TO other_program; {SchemaManager.get_schema()}"
    postgres_server.run(script, database=database)
    return f"{database_url}?procrastinate_schema=other_program"


async def test_a_foreign_procrastinate_is_used_and_not_migrated(foreign: str, postgres_server: PostgresServer) -> None:
    async with open_store(foreign) as store:
        await StoreHarness(store, FakeClock()).create()
    async with open_store(foreign):
        pass
    database = foreign.partition("?")[0].rpartition("/")[2]
    assert postgres_server.run("SELECT * FROM other_program.raincheck_procrastinate", database=database) == [
        (EXTERNALLY_MANAGED,)
    ]
    assert postgres_server.run("SELECT count(*) FROM other_program.procrastinate_jobs", database=database) == [(1,)]


async def test_a_foreign_procrastinate_that_is_too_old_is_refused(
    foreign: str, postgres_server: PostgresServer
) -> None:
    database = foreign.partition("?")[0].rpartition("/")[2]
    async with open_store(f"{foreign.partition('?')[0]}?schema=elsewhere"):
        # A newer one, in another schema.
        pass
    postgres_server.run(f"DROP FUNCTION other_program.{REQUIRED_FUNCTIONS[-1]}", database=database)
    store = await asyncio.to_thread(make_store, foreign)
    with pytest.raises(ConfigurationError, match=f"older Procrastinate, without {REQUIRED_FUNCTIONS[-1]}"):
        await store.open()


def test_connection_parameters_in_the_url_are_used() -> None:
    parameters = conninfo_to_dict(parse_url("postgresql://host/db?application_name=mine&connect_timeout=3").conninfo)
    assert (parameters["application_name"], parameters["connect_timeout"]) == ("mine", "3")
    assert conninfo_to_dict(parse_url("postgresql://host/db").conninfo)["application_name"] == "raincheck"
