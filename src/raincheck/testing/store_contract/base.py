"""Shared base of the contract's parts: makes, opens, checks and closes the store under test."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest

from raincheck.core.records import TaskId
from raincheck.stores.base import Store
from raincheck.testing.clock import FakeClock
from raincheck.testing.harness import StoreHarness, wait_for_hint
from raincheck.testing.invariants import check_invariants

T = TypeVar("T")

Handles: TypeAlias = tuple[StoreHarness, StoreHarness]
"""Two handles on the same data."""


class StoreContractBase:
    """Base of the contract's parts. Subclasses make a store; its `capabilities` decide which tests run."""

    pytestmark = pytest.mark.anyio

    def make_store(self, folder: Path) -> Store:
        """Return a store that is not opened yet. If it is shared or durable, the same folder means the same data."""
        raise NotImplementedError("no store to test: override make_store")

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with self.open_store(tmp_path) as store:
            yield store
            await check_invariants(store)

    @pytest.fixture
    def harness(self, store: Store, clock: FakeClock) -> StoreHarness:
        return StoreHarness(store, clock)

    @pytest.fixture
    async def handles(self, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Handles]:
        """Yield two open handles on the same data."""
        self.require(shared=True)
        async with self.open_store(tmp_path) as one, self.open_store(tmp_path) as two:
            yield StoreHarness(one, clock), StoreHarness(two, clock)
            await check_invariants(one)

    @asynccontextmanager
    async def open_store(self, folder: Path) -> AsyncGenerator[Store]:
        store = self.make_store(folder)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def require(self, *, durable: bool = False, shared: bool = False) -> None:
        """Skip a test that needs a capability the store does not declare."""
        capabilities = self.make_store(Path()).capabilities
        if durable and not capabilities.durable:
            pytest.skip("declared: not durable")
        if shared and not capabilities.shared:
            pytest.skip("declared: not shared")


async def use_in_thread(store: Store, use: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Use a new handle on the same data in another thread, with its own event loop."""

    async def run() -> T:
        handle = store.new_handle()
        await handle.open()
        try:
            return await use(handle)
        finally:
            await handle.close()

    return await asyncio.to_thread(asyncio.run, run())


async def hinted_during(harness: StoreHarness, operation: Awaitable[object]) -> set[TaskId]:
    """Return the tasks that a change feed names after an operation."""
    with harness.store.listen() as feed:
        await operation
        # A change that the feed does report follows, so that the wait has an end.
        last = await harness.create()
        return await wait_for_hint(feed, last.id) - {last.id}
