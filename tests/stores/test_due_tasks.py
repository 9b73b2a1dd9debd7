"""A claim stays fast, however many tasks become due at one moment."""

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
async def test_a_claim_wakes_a_limited_number_of_due_tasks_the_first_to_be_due_first(tmp_path: Path, kind: str) -> None:
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "tasks.db")
    await store.open()
    harness = StoreHarness(store, FakeClock())
    later = harness.clock.now() + timedelta(hours=2)
    last = await harness.create(due_at=later, priority=100)
    await asyncio.gather(*(harness.create(due_at=later - timedelta(hours=1)) for _ in range(DUE_LIMIT)))
    harness.clock.jump_to(later)
    (first,) = await harness.claim()
    assert first.id != last.id
    assert await store.count_live(EVERYTHING) == {Phase.RUNNING: 1, Phase.QUEUED: DUE_LIMIT - 1, Phase.PARKED: 1}
    assert [task.id for task in await harness.claim()] == [last.id]
    await store.close()
