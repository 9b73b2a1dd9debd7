"""Proxies of stores that change the hints which an engine receives."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from raincheck.core.change import Creation
from raincheck.core.records import Task, TaskId
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANY_TASK, ChangeFeed, ChangeHint

HintCallback: TypeAlias = Callable[[ChangeHint], None]


class CreateOnlyStore:
    """Never starts a task in `create`, and returns from it only when the engine has received a hint about the task."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hinted: set[TaskId] = set()
        self._has_hint = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, creation: Creation, *, claim: object = None, **options: Any) -> Task:
        del claim
        task = await self._store.create(creation, **options)
        while task.id not in self._hinted:
            self._has_hint.clear()
            await self._has_hint.wait()
        return task

    @contextmanager
    def listen(self) -> Generator["ForwardingFeed"]:
        with self._store.listen() as feed:
            yield ForwardingFeed(feed, self._pass_on)

    def _pass_on(self, callback: HintCallback, hint: ChangeHint) -> None:
        callback(hint)
        self._hinted |= hint
        self._has_hint.set()


class AnonymousHintStore:
    """Replaces every hint by one that names no task."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def listen(self) -> Generator["ForwardingFeed"]:
        with self._store.listen() as feed:
            yield ForwardingFeed(feed, lambda callback, _: callback(ANY_TASK))


class BeforeHintStore:
    """Calls `before_next_hint` just before the engine receives the next hint."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before_next_hint: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def listen(self) -> Generator["ForwardingFeed"]:
        with self._store.listen() as feed:
            yield ForwardingFeed(feed, self._pass_on)

    def _pass_on(self, callback: HintCallback, hint: ChangeHint) -> None:
        before_next_hint, self.before_next_hint = self.before_next_hint, None
        if before_next_hint is not None:
            before_next_hint()
        callback(hint)


class ForwardingFeed:
    """A feed that passes each hint to a function, which forwards it."""

    def __init__(self, feed: ChangeFeed, pass_on: Callable[[HintCallback, ChangeHint], None]) -> None:
        self._feed = feed
        self._pass_on = pass_on

    async def for_each(self, callback: HintCallback) -> None:
        await self._feed.for_each(partial(self._pass_on, callback))
