"""The check for waiting tasks is up to date and cheap."""

import asyncio
from typing import Any

import psycopg
import pytest

from raincheck.core.lifecycle import Phase
from raincheck.stores.factory import open_store
from raincheck.stores.postgres import parse_url
from raincheck.stores.postgres.connection import open_connection
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import ALICE, BOB, NAMESPACE
from raincheck.testing.store_contract.direct_start import OFFER

pytestmark = pytest.mark.anyio


MANY = """
INSERT INTO tasks (
    id, namespace, owner, tool, tool_version, created_at, priority, retry, keep, updated_at, phase, version, fence,
    failures, pausing, signals, open_inputs, entries, is_error, turn
)
SELECT
    'task ' || number, 'here', 'owner ' || number %% 50, 'other', '1', number, 0, '{}', 0, number, 'queued', 1, 0,
    0, 0, 0, 0, 1, 0, number
FROM generate_series(%s::int, %s) AS number
"""
WHO_WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.mark.parametrize(
    "asks",
    [
        "next_turn('here', 'me', 0, false, 'mine', '1')",
        "something_waits('here', ARRAY['mine'], ARRAY['1'], 0)",
    ],
)
@pytest.mark.parametrize("few", [0, 3])
async def test_a_long_queue_of_other_tasks_costs_nothing_even_with_old_plans(
    few: int, asks: str, database_url: str
) -> None:
    async with open_store(database_url):
        pass
    async with open_connection(parse_url(database_url)) as connection:
        await connection.execute(MANY, (1, few))
        await connection.execute("ANALYZE")
        for _ in range(10):
            await connection.execute(f"SELECT {asks}")  # pyright: ignore[reportArgumentType, reportCallIssue] - of this file
        await connection.execute("INSERT INTO lines (namespace, priority, served) VALUES ('here', 0, 2500)")
        await connection.execute(MANY, (few + 1, 5_000))
        query: Any = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT {asks}"
        ((plan,),) = await (await connection.execute(query)).fetchall()
    assert plan[0]["Plan"]["Shared Hit Blocks"] < 50


async def test_a_task_queued_while_a_creation_waits_for_its_owners_lock_is_not_overtaken(database_url: str) -> None:
    async with open_store(database_url) as store:
        harness = StoreHarness(store, FakeClock())
        # Another transaction holds the lock for creations of the same owner.
        async with await psycopg.AsyncConnection.connect(database_url) as other:
            await other.execute("SET search_path TO raincheck")
            await other.execute("SELECT admit(%s, %s, 0, NULL, NULL)", (NAMESPACE, ALICE.key))
            creating = asyncio.ensure_future(harness.create(owner=ALICE, claim=OFFER))
            await wait_until_blocked(other)
            await harness.create(owner=BOB)
            assert not creating.done()
        assert (await creating).phase is Phase.QUEUED


async def wait_until_blocked(connection: psycopg.AsyncConnection[Any]) -> None:
    async with asyncio.timeout(10):
        while True:
            found = await connection.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            )
            if await found.fetchone() == (1,):
                return
            await asyncio.sleep(0.01)
