"""Shared base of the contract's parts: the store under test, and the hooks that control it from outside."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from raincheck.stores.base import Store
from raincheck.testing.dispatcher_contract.processes import DispatcherHarness, load_store_factory
from raincheck.testing.invariants import check_invariants


class DispatcherContractBase:
    """Base of the contract's parts. Subclasses name a store; further overrides enable further tests."""

    pytestmark = pytest.mark.anyio

    store_factory: ClassVar[str] = "raincheck.stores.factory:make_store"
    """Function that makes a store from a URL, as `package.module:function`. Worker processes import it too."""

    def store_url(self, folder: Path) -> str:
        """Return the URL of a store that several processes can use. The same folder means the same data."""
        raise NotImplementedError("no store to test: override store_url")

    def count_jobs(self) -> int:
        """Return how many jobs there are, waiting or running. Do not override it if tasks have no separate jobs."""
        raise NotImplementedError

    def crash_database(self) -> None:
        """Kill the database in the middle of its work, and start it again. It is called in a thread.

        Do not override it if there is no separate database.
        """
        raise NotImplementedError

    def stop_polling(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Disable polling by the workers in this process, so that only events drive them."""

    def is_listening(self) -> bool:
        """Return whether a worker started in this process already receives new-task events. Called in a thread."""
        return True

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def site(self, tmp_path: Path) -> AsyncIterator[DispatcherHarness]:
        url = self.store_url(tmp_path)
        store = await self.make_store(tmp_path)
        await store.open()
        try:
            site = DispatcherHarness(store, url, self.store_factory, tmp_path)
            try:
                async with site.engine:
                    yield site
            finally:
                await site.kill_workers()
            await check_invariants(store)
        finally:
            await store.close()

    async def make_store(self, folder: Path) -> Store:
        """Make a store that is not opened yet."""
        make = load_store_factory(self.store_factory)
        return await asyncio.to_thread(make, self.store_url(folder))

    @property
    def has_jobs(self) -> bool:
        return type(self).count_jobs is not DispatcherContractBase.count_jobs

    def require(self, *, jobs: bool = False, crashes: bool = False) -> None:
        """Skip a test whose hook the subclass does not override."""
        if jobs and not self.has_jobs:
            pytest.skip("declared: tasks have no separate jobs")
        if crashes and type(self).crash_database is DispatcherContractBase.crash_database:
            pytest.skip("declared: no separate database that can crash")

    async def job_count(self) -> int:
        return await asyncio.to_thread(self.count_jobs) if self.has_jobs else 0
