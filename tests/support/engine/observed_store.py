"""A store that counts what is asked of it, and is out of reach when a test says so; and a clock to go with it."""

import asyncio
import inspect
from collections import Counter
from dataclasses import replace
from typing import Any, cast

from raincheck.clock import SystemClock
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.requests import ClaimRequest
from raincheck.testing import FakeClock

WRITES = frozenset({"create", "commit", "claim", "extend_leases", "prune"})


def a_clock() -> FakeClock:
    """One that begins now, so that what ends on it has not expired for whoever looks at a real one."""
    return FakeClock(SystemClock().now())


class Watched:
    """In front of another store. A twin of it is the other store's, so what a keeper's thread does is not seen."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failures: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._gates: dict[str, asyncio.Event] = {}
        self._late: dict[str, asyncio.Event] = {}
        self._asked: dict[str, asyncio.Event] = {}
        self._done: dict[str, asyncio.Event] = {}
        self.calls: Counter[str] = Counter()

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    @property
    def writes(self) -> int:
        """How many of the calls were writes."""
        return sum(count for name, count in self.calls.items() if name in WRITES)

    def fail(self, *names: str, times: int) -> None:
        """Be out of reach for the next so many calls of each."""
        self._failures.update(dict.fromkeys(names, times))

    def recover(self) -> None:
        """Be in reach again."""
        self._failures.clear()

    def lose_replies(self, name: str, times: int) -> None:
        """Do what is asked the next so many times, and say that it could not be done."""
        self._lost[name] += times

    def hold_up(self, name: str) -> asyncio.Event:
        """Let calls of it wait until the event is set."""
        return self._gates.setdefault(name, asyncio.Event())

    def hold_up_replies(self, name: str) -> asyncio.Event:
        """Do what is asked, and let whoever asked wait until the event is set."""
        return self._late.setdefault(name, asyncio.Event())

    async def asked(self, name: str) -> None:
        """Wait until it is asked for."""
        await self._asked.setdefault(name, asyncio.Event()).wait()

    async def done(self, name: str) -> None:
        """Wait until it was done, whether or not whoever asked has been told."""
        await self._done.setdefault(name, asyncio.Event()).wait()

    def let_all_through(self) -> None:
        """Hold up nothing any more."""
        self._gates.clear()
        self._late.clear()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: object, **kwargs: object) -> object:
            self.calls[name] += 1
            if name in self._asked:
                self._asked.pop(name).set()
            if name in self._gates:
                await self._gates[name].wait()
            if self._failures[name] > 0:
                self._failures[name] -= 1
                raise StoreUnavailable("a watched store", "it is out of reach for a while")
            if name == "claim" and isinstance(args[0], ClaimRequest):
                # A journal that is brought along could not be watched.
                args = (replace(args[0], journals=None), *args[1:])
            result: object = await found(*args, **kwargs)
            if name in self._done:
                self._done.pop(name).set()
            if name in self._late:
                await self._late[name].wait()
            if self._lost[name] > 0:
                self._lost[name] -= 1
                raise StoreUnavailable("a watched store", "the reply was lost")
            return result

        return call
