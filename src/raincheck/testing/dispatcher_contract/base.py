"""What the parts of the contract share: where the tasks are, and what can be done to that from outside."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from raincheck.stores.base import Store
from raincheck.testing.dispatcher_contract.processes import Site, find_opener
from raincheck.testing.invariants import check_invariants


class DispatchBase:
    """Subclasses name a store. What else they can say lets more be tested."""

    pytestmark = pytest.mark.anyio

    opener: ClassVar[str] = "raincheck.stores.factory:make_store"
    """What makes a store of a URL, as `package.module:function`: worker processes import it too."""

    def store_url(self, folder: Path) -> str:
        """The URL of a store that several processes can use. The same folder means the same data."""
        raise NotImplementedError("name a store: override store_url")

    def count_jobs(self) -> int:
        """How many jobs there are, waiting or in work. Left alone where tasks are their own jobs."""
        raise NotImplementedError

    def crash_database(self) -> None:
        """Kill what keeps the tasks in the middle of whatever it does, and start it again. Left alone where it can't.

        It is called in a thread.
        """
        raise NotImplementedError

    def stop_polling(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have workers in this process look for nothing by themselves, so that only events drive them."""

    def is_told(self) -> bool:
        """Whether a worker that was started in this process is told of new tasks by now. It is called in a thread."""
        return True

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def site(self, tmp_path: Path) -> AsyncIterator[Site]:
        url = self.store_url(tmp_path)
        store = await self.make_store(tmp_path)
        await store.open()
        try:
            site = Site(store, url, self.opener, tmp_path)
            try:
                async with site.engine:
                    yield site
            finally:
                await site.end_all()
            await check_invariants(store)
        finally:
            await store.close()

    async def make_store(self, folder: Path) -> Store:
        """A store, not opened yet."""
        make = find_opener(self.opener)
        return await asyncio.to_thread(make, self.store_url(folder))

    @property
    def has_jobs(self) -> bool:
        return type(self).count_jobs is not DispatchBase.count_jobs

    def need(self, *, jobs: bool = False, crashes: bool = False) -> None:
        """Leave a test out where what it is about is not declared, by saying how it is done."""
        if jobs and not self.has_jobs:
            pytest.skip("declared: tasks are their own jobs")
        if crashes and type(self).crash_database is DispatchBase.crash_database:
            pytest.skip("declared: there is no database that could crash alone")

    async def jobs(self) -> int:
        return await asyncio.to_thread(self.count_jobs) if self.has_jobs else 0
