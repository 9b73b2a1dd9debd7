"""A proxy of a store that counts calls, and can fail or block them; and a clock for it."""

import asyncio
import inspect
from collections import Counter
from dataclasses import replace
from typing import Any, cast

from raincheck.clock import SystemClock
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.requests import ClaimRequest
from tests.support.watched_clock import WatchedClock

WRITES = frozenset({"create", "commit", "claim", "extend_leases", "prune"})


def make_clock() -> WatchedClock:
    """Return a fake clock that starts at the current time, so that its tasks have not expired on a real clock."""
    return WatchedClock(SystemClock().now())


class ObservedStore:
    """A proxy that counts, fails and blocks calls. Calls of the heartbeat thread, on a new handle, pass."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failures: Counter[str] = Counter()
        self._lost_replies: Counter[str] = Counter()
        self._gates: dict[str, asyncio.Event] = {}
        self._reply_gates: dict[str, asyncio.Event] = {}
        self._called: dict[str, asyncio.Event] = {}
        self._done: dict[str, asyncio.Event] = {}
        self.calls: Counter[str] = Counter()

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    @property
    def writes(self) -> int:
        """The number of calls that were writes."""
        return sum(count for name, count in self.calls.items() if name in WRITES)

    def fail(self, *names: str, times: int) -> None:
        """Fail this many calls of each of these methods, as if the store were unavailable."""
        self._failures.update(dict.fromkeys(names, times))

    def recover(self) -> None:
        """Stop failing calls."""
        self._failures.clear()

    def lose_replies(self, name: str, times: int) -> None:
        """Execute this many calls of a method, and then raise an error as if the reply was lost."""
        self._lost_replies[name] += times

    def block(self, name: str) -> asyncio.Event:
        """Block calls of a method until the event is set."""
        return self._gates.setdefault(name, asyncio.Event())

    def block_replies(self, name: str) -> asyncio.Event:
        """Execute calls of a method, and block their replies until the event is set."""
        return self._reply_gates.setdefault(name, asyncio.Event())

    async def wait_called(self, name: str) -> None:
        """Wait for the next call of a method."""
        await self._called.setdefault(name, asyncio.Event()).wait()

    async def wait_done(self, name: str) -> None:
        """Wait until a call of a method was executed, whether or not its reply is blocked."""
        await self._done.setdefault(name, asyncio.Event()).wait()

    def unblock_all(self) -> None:
        """Stop blocking calls."""
        self._gates.clear()
        self._reply_gates.clear()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: object, **kwargs: object) -> object:
            self.calls[name] += 1
            if name in self._called:
                self._called.pop(name).set()
            if name in self._gates:
                await self._gates[name].wait()
            if self._failures[name] > 0:
                self._failures[name] -= 1
                raise StoreUnavailable("an observed store", "it is out of reach for a while")
            if name == "claim" and isinstance(args[0], ClaimRequest):
                # Journals that come with the claim could not be observed.
                args = (replace(args[0], journals=None), *args[1:])
            result: object = await method(*args, **kwargs)
            if name in self._done:
                self._done.pop(name).set()
            if name in self._reply_gates:
                await self._reply_gates[name].wait()
            if self._lost_replies[name] > 0:
                self._lost_replies[name] -= 1
                raise StoreUnavailable("an observed store", "the reply was lost")
            return result

        return call
