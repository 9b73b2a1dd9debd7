"""A server's store that is out of reach when a test says so."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck.core.change import Change
from raincheck.errors import StoreUnavailable
from raincheck.stores.factory import open_store


class Away:
    """In front of a store, once its server has opened one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store: Any = None
        self._times: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.answers = asyncio.Event()
        """Whether tasks can be loaded, or who wants one has to wait."""
        self.answers.set()
        self.takes_answers = asyncio.Event()
        """Whether commits with answers to questions proceed, or wait."""
        self.takes_answers.set()
        self.has_answer = asyncio.Event()
        """Such a commit was called."""
        self.missed = asyncio.Event()
        """Somebody has asked in vain."""
        monkeypatch.setattr("raincheck.server.runtime.open_store", self._open)

    def be_away(self, name: str, times: int) -> None:
        """Be out of reach for the next so many calls of this name."""
        self._times[name] = times

    @asynccontextmanager
    async def _open(self, name: Any) -> AsyncGenerator["Away"]:
        async with open_store(name) as self._store:
            yield self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def view(self, *args: Any, **kwargs: Any) -> Any:
        self.calls["view"] += 1
        if self._times["view"] > 0:
            self._times["view"] -= 1
            self.missed.set()
            raise StoreUnavailable("a store", "it is out of reach for a while")
        return await self._store.view(*args, **kwargs)

    async def load(self, *args: Any, **kwargs: Any) -> Any:
        self.calls["load"] += 1
        await self.answers.wait()
        return await self._store.load(*args, **kwargs)

    async def commit(self, changes: Sequence[Change], *args: Any, **kwargs: Any) -> Any:
        if any(not question.is_open for change in changes for question in change.inputs):
            self.has_answer.set()
            await self.takes_answers.wait()
        return await self._store.commit(changes, *args, **kwargs)
