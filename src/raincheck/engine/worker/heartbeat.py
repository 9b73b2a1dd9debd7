"""The heartbeat: extends the leases of running attempts from its own thread.

A body that blocks the event loop blocks everything in that loop. The heartbeat has its own loop and its own handle on
the store. It also detects that the engine's loop does not respond, and logs it.
"""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

from raincheck.core.records import TaskId
from raincheck.engine.execution.session import AttemptSession
from raincheck.engine.submit import EngineDeps
from raincheck.errors import StoreError
from raincheck.stores.base import Store
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)


class Heartbeat:
    """Extends the leases of the running attempts, three times per lease duration."""

    def __init__(self, deps: EngineDeps, lease: float, get_sessions: Callable[[], tuple[AttemptSession, ...]]) -> None:
        self._deps = deps
        self._lease = lease
        self._get_sessions = get_sessions
        self._engine_loop = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        # A daemon thread, so that a program that forgets to stop it still exits.
        self._thread = threading.Thread(target=self._run_thread, name="raincheck-heartbeat", daemon=True)
        self._extended_at = deps.clock.now()
        self._has_responded = True
        self._has_warned = False

    def start(self) -> None:
        """Start the thread, if the store can be used from one. Otherwise `extend_if_late` extends the leases."""
        if self._deps.store.capabilities.shared:
            self._thread.start()

    async def stop(self) -> None:
        """Stop the thread, and wait for it."""
        if self._thread.ident is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def extend_if_late(self) -> None:
        """Extend every lease on the engine's handle if that is late: there is no thread, or it was asleep too."""
        late = self._extended_at + timedelta(seconds=self._lease / 3)
        if not self._extended_at <= self._deps.clock.now() < late:
            self._notify_lost(await self._extend(self._deps.store))

    async def _extend(self, store: Store) -> frozenset[TaskId]:
        now = self._deps.clock.now()
        # A settled attempt may still hold its slot while a later attempt of its task holds another one.
        sessions = [session for session in self._get_sessions() if not session.settled.is_set()]
        attempts = [
            session.held_attempt for session in sessions if session.renew_until is None or now < session.renew_until
        ]
        until = now + timedelta(seconds=self._lease)
        lost = await store.extend_leases(attempts, until=until) if attempts else frozenset[TaskId]()
        # Only now: if the store refuses, the leases are still late, and the next check should try again.
        self._extended_at = now
        for session in sessions:
            if session.held_attempt in attempts and session.task.id not in lost:
                session.lease_until = until
        return lost

    def _notify_lost(self, lost: frozenset[TaskId]) -> None:
        """Wake the attempts that lost their leases. Each checks for itself: by now it may hold the task again."""
        for session in self._get_sessions():
            if session.task.id in lost:
                session.watcher.wake_event.set()

    def _run_thread(self) -> None:
        try:
            self._loop.run_until_complete(self._run())
        except Exception:
            logger.exception("the heartbeat has stopped: long attempts may lose their leases")

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._run_with(self._deps.store.new_handle())
            except StoreError as error:
                logger.warning("leases could not be extended, will try again: %s", error)
                await self._pause()

    async def _run_with(self, store: Store) -> None:
        await store.open()
        try:
            while not self._stopping.is_set():
                lost = await self._extend(store)
                if not self._report_lost(lost):
                    return
                await self._pause()
        finally:
            await store.close()

    def _report_lost(self, lost: frozenset[TaskId]) -> bool:
        if not self._has_responded and not self._has_warned:
            running = ", ".join(f"{session.task.log_id} ({session.task.tool.name})" for session in self._get_sessions())
            logger.warning(
                "the event loop has not responded for %.1f s: something blocks it. Running: %s. "
                'Make the blocking body a plain function, or give its tool isolation="process"',
                self._lease / 3,
                running or "no task",
            )
        self._has_warned = not self._has_responded
        self._has_responded = False
        try:
            self._engine_loop.call_soon_threadsafe(self._on_response, lost)
        except RuntimeError:
            # The engine's loop is closed: the program ended without stopping the engine.
            self._stopping.set()
            return False
        return True

    def _on_response(self, lost: frozenset[TaskId]) -> None:
        self._has_responded = True
        self._notify_lost(lost)

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), self._lease / 3)
        except TimeoutError:
            return
