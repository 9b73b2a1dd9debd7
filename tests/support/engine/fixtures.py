"""The fixture `bench`: an engine on each store. A folder of tests that wants it imports both names in its conftest."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from raincheck.stores.base import Store
from raincheck.stores.factory import make_store
from raincheck.stores.memory import MemoryStore
from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import check_invariants
from tests.support.engine.harness import Bench

STORES = ("memory", "sqlite", "postgres")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bench" in metafunc.fixturenames:
        # What is scripted by when an engine looks for work is not for a store whose attempts are carried.
        looks = metafunc.definition.get_closest_marker("looks_for_work")
        metafunc.parametrize("bench", STORES[:2] if looks else STORES, indirect=True)


@pytest.fixture
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    store: Store
    match request.param:
        case "memory":
            store = MemoryStore()
        case "sqlite":
            store = SqliteStore(tmp_path / "tasks.db", synchronous="NORMAL")
        case _:
            store = await asyncio.to_thread(make_store, request.getfixturevalue("store_url"))
    await store.open()
    yield Bench(store)
    await check_invariants(store)
    await store.close()
