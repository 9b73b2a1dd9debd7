"""The fixture `harness`: an engine harness on each store. The conftest of a folder that uses it imports both names."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from raincheck.stores.base import Store
from raincheck.stores.factory import make_store
from raincheck.stores.memory import MemoryStore
from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import check_invariants
from tests.support.engine.harness import EngineHarness

STORES = ("memory", "sqlite", "postgres")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "harness" in metafunc.fixturenames:
        # Tests that script the polling of the claim loop can't use a store whose dispatcher delivers attempts.
        polls = metafunc.definition.get_closest_marker("looks_for_work")
        metafunc.parametrize("harness", STORES[:2] if polls else STORES, indirect=True)


@pytest.fixture
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineHarness]:
    store: Store
    match request.param:
        case "memory":
            store = MemoryStore()
        case "sqlite":
            store = SqliteStore(tmp_path / "tasks.db", synchronous="NORMAL")
        case _:
            store = await asyncio.to_thread(make_store, request.getfixturevalue("store_url"))
    await store.open()
    yield EngineHarness(store)
    await check_invariants(store)
    await store.close()
