"""Shared base of the contract's parts: makes, opens, checks and closes the store under test."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raincheck.stores.base import Store
from raincheck.testing.clock import FakeClock
from raincheck.testing.harness import StoreHarness
from raincheck.testing.invariants import check_invariants


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

    @asynccontextmanager
    async def open_store(self, folder: Path) -> AsyncGenerator[Store]:
        store = self.make_store(folder)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def require(self, *, durable: bool = False, shared: bool = False, supports_direct_start: bool = False) -> None:
        """Skip a test that needs a capability the store does not declare."""
        capabilities = self.make_store(Path()).capabilities
        if durable and not capabilities.durable:
            pytest.skip("declared: not durable")
        if shared and not capabilities.shared:
            pytest.skip("declared: not shared")
        if supports_direct_start and not capabilities.supports_direct_start:
            pytest.skip("declared: no direct start")
