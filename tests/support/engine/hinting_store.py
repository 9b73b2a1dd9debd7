"""Stores that say more, or less, of what has changed than a test would otherwise be sure of."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from raincheck.core.change import Creation
from raincheck.core.records import Task, TaskId
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANY_TASK, ChangeFeed, ChangeHint

Hear: TypeAlias = Callable[[ChangeHint], None]


class KeepsOnly:
    """In front of another store: it begins no task in `create`, and answers when the engine has heard of the task."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._heard_of: set[TaskId] = set()
        self._heard = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, creation: Creation, *, claim: object = None, **how: Any) -> Task:
        del claim
        task = await self._store.create(creation, **how)
        while task.id not in self._heard_of:
            self._heard.clear()
            await self._heard.wait()
        return task

    @contextmanager
    def listen(self) -> Generator["Passing"]:
        with self._store.listen() as feed:
            yield Passing(feed, self._pass_on)

    def _pass_on(self, hear: Hear, hint: ChangeHint) -> None:
        hear(hint)
        self._heard_of |= hint
        self._heard.set()


class NamesNobody:
    """In front of another store: it says that something has changed, and not what."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def listen(self) -> Generator["Passing"]:
        with self._store.listen() as feed:
            yield Passing(feed, lambda hear, _: hear(ANY_TASK))


class TellsBeforehand:
    """In front of another store: something can be done when the engine is about to hear of the next change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.first: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def listen(self) -> Generator["Passing"]:
        with self._store.listen() as feed:
            yield Passing(feed, self._pass_on)

    def _pass_on(self, hear: Hear, hint: ChangeHint) -> None:
        first, self.first = self.first, None
        if first is not None:
            first()
        hear(hint)


class Passing:
    """A feed whose hints are passed on as somebody else sees fit."""

    def __init__(self, feed: ChangeFeed, pass_on: Callable[[Hear, ChangeHint], None]) -> None:
        self._feed = feed
        self._pass_on = pass_on

    async def for_each(self, hear: Hear) -> None:
        await self._feed.for_each(partial(self._pass_on, hear))
