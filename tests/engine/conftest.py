"""An engine on each store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from workbench import Bench

from raincheck.stores.memory import MemoryStore
from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import check_invariants


@pytest.fixture(params=["memory", "sqlite"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "tasks.db", synchronous="NORMAL")
    await store.open()
    yield Bench(store)
    await check_invariants(store)
    await store.close()
