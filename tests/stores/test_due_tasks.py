"""However many tasks become due at one moment, no claim takes long over it."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.stores.base import Store
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import DUE_LIMIT
from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import EVERYTHING

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_claim_lets_only_so_many_through_and_the_first_to_be_due_first(tmp_path: Path, kind: str) -> None:
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "tasks.db")
    await store.open()
    scene = StoreHarness(store, FakeClock())
    later = scene.clock.now() + timedelta(hours=2)
    last = await scene.create(due_at=later, priority=100)
    await asyncio.gather(*(scene.create(due_at=later - timedelta(hours=1)) for _ in range(DUE_LIMIT)))
    scene.clock.jump_to(later)
    (first,) = await scene.claim()
    assert first.id != last.id
    assert await store.count_live(EVERYTHING) == {Phase.RUNNING: 1, Phase.QUEUED: DUE_LIMIT - 1, Phase.PARKED: 1}
    assert [task.id for task in await scene.claim()] == [last.id]
    await store.close()
