"""What the parts of the contract share: how a store is made, opened, checked and closed."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raincheck.stores.base import Store
from raincheck.testing.clock import FakeClock
from raincheck.testing.harness import Scene
from raincheck.testing.invariants import check_invariants


class ContractBase:
    """Subclasses say how to make a store; everything else follows from its `capabilities`."""

    pytestmark = pytest.mark.anyio

    def make_store(self, folder: Path) -> Store:
        """A store, not opened yet. For a shared or durable one, the same folder means the same data."""
        raise NotImplementedError("say how to make your store: override make_store")

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with self.opened(tmp_path) as store:
            yield store
            await check_invariants(store)

    @pytest.fixture
    def scene(self, store: Store, clock: FakeClock) -> Scene:
        return Scene(store, clock)

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncGenerator[Store]:
        store = self.make_store(folder)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def need(self, *, durable: bool = False, shared: bool = False, takes_offers: bool = False) -> None:
        """Leave a test out where the store does not claim to do what it is about."""
        capabilities = self.make_store(Path()).capabilities
        if durable and not capabilities.durable:
            pytest.skip("declared: not durable")
        if shared and not capabilities.shared:
            pytest.skip("declared: not shared")
        if takes_offers and not capabilities.takes_offers:
            pytest.skip("declared: takes no offers")
