"""The keeper: extends the leases of running attempts, from a thread of its own.

A body that blocks the event loop blocks everything that lives in it. The keeper does not: it has its own loop and its
own handle on the store. It also notices when the engine's loop does not answer, and says so.
"""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

from raincheck.core.records import TaskId
from raincheck.engine.execution.session import Hold
from raincheck.engine.submit import Means
from raincheck.errors import StoreError
from raincheck.stores.base import Store
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)


class Keeper:
    """Keeps the leases of what is held, three times in the time of one."""

    def __init__(self, means: Means, lease: float, holds: Callable[[], tuple[Hold, ...]]) -> None:
        self._means = means
        self._lease = lease
        self._holds = holds
        self._home = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        # A daemon, so that a program that forgets to stop it still ends.
        self._thread = threading.Thread(target=self._serve, name="raincheck-keeper", daemon=True)
        self._extended_at = means.clock.now()
        self._has_answered = True
        self._has_warned = False

    def start(self) -> None:
        """Start the thread, if the store can be used from one. Otherwise it is up to `catch_up`."""
        if self._means.store.capabilities.shared:
            self._thread.start()

    async def stop(self) -> None:
        """Let the thread end, and wait for it."""
        if self._thread.ident is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def catch_up(self) -> None:
        """Extend every lease on the engine's own handle, if that is late: there is no thread, or it was asleep too."""
        late = self._extended_at + timedelta(seconds=self._lease / 3)
        if not self._extended_at <= self._means.clock.now() < late:
            self._drop(await self._extend(self._means.store))

    async def _extend(self, store: Store) -> frozenset[TaskId]:
        now = self._means.clock.now()
        # What is over may still have its place, and a later attempt of its task another one.
        holds = [hold for hold in self._holds() if not hold.over.is_set()]
        held = [hold.held for hold in holds if hold.lasts_until is None or now < hold.lasts_until]
        until = now + timedelta(seconds=self._lease)
        lost = await store.extend_leases(held, until=until) if held else frozenset[TaskId]()
        # Only now: one that the store refused is late, and whoever is next to look at the leases should try again.
        self._extended_at = now
        for hold in holds:
            if hold.held in held and hold.task.id not in lost:
                hold.lease_until = until
        return lost

    def _drop(self, lost: frozenset[TaskId]) -> None:
        """Have those attempts stop that lost their task. Each looks for itself: by now it may hold it again."""
        for hold in self._holds():
            if hold.task.id in lost:
                hold.lookout.poked.set()

    def _serve(self) -> None:
        try:
            self._loop.run_until_complete(self._keep())
        except Exception:
            logger.exception("the keeper of leases has ended: long bodies may lose their tasks")

    async def _keep(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._keep_with(self._means.store.twin())
            except StoreError as error:
                logger.warning("leases could not be extended, will try again: %s", error)
                await self._pause()

    async def _keep_with(self, store: Store) -> None:
        await store.open()
        try:
            while not self._stopping.is_set():
                lost = await self._extend(store)
                if not self._tell_home(lost):
                    return
                await self._pause()
        finally:
            await store.close()

    def _tell_home(self, lost: frozenset[TaskId]) -> bool:
        if not self._has_answered and not self._has_warned:
            running = ", ".join(f"{hold.task.shown_id} ({hold.task.tool.name})" for hold in self._holds())
            logger.warning(
                "the event loop has not answered for %.1f s: something blocks it. What runs: %s. "
                'Make a body that blocks a plain function, or give it isolation="process"',
                self._lease / 3,
                running or "no task",
            )
        self._has_warned = not self._has_answered
        self._has_answered = False
        try:
            self._home.call_soon_threadsafe(self._answer, lost)
        except RuntimeError:
            # The engine's loop is closed: the program ended without stopping the engine.
            self._stopping.set()
            return False
        return True

    def _answer(self, lost: frozenset[TaskId]) -> None:
        self._has_answered = True
        self._drop(lost)

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), self._lease / 3)
        except TimeoutError:
            return
