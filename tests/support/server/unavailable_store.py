"""A store that a test can make unavailable."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck.core.change import Change
from raincheck.errors import StoreUnavailable
from raincheck.stores.factory import open_store


class UnavailableStore:
    """Wraps the store that a server opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store: Any = None
        self._times: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.answers = asyncio.Event()
        """While it is not set, loading a task waits."""
        self.answers.set()
        self.takes_answers = asyncio.Event()
        """While it is not set, commits with answers to questions wait."""
        self.takes_answers.set()
        self.has_answer = asyncio.Event()
        """Set when such a commit was called."""
        self.missed = asyncio.Event()
        """Set when a view was refused."""
        monkeypatch.setattr("raincheck.server.runtime.open_store", self._open)

    def fail_next(self, name: str, times: int) -> None:
        """Fail the next calls of this name."""
        self._times[name] = times

    @asynccontextmanager
    async def _open(self, name: Any) -> AsyncGenerator["UnavailableStore"]:
        async with open_store(name) as self._store:
            yield self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def view(self, *args: Any, **kwargs: Any) -> Any:
        self.calls["view"] += 1
        if self._times["view"] > 0:
            self._times["view"] -= 1
            self.missed.set()
            raise StoreUnavailable("a store", "it is unavailable for a while")
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
