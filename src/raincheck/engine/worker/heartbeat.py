"""Leases: the heartbeat extends those of running attempts, and the sweeper recovers tasks whose leases expired.

A body that blocks the event loop blocks everything in that loop, so the heartbeat runs in its own thread, with its own
loop and its own handle on the store. It also detects that the engine's loop does not respond, and logs it.

The sweeper recovers tasks of dead workers, ends tasks past their deadline, and prunes expired ones.
"""

import asyncio
import threading
from datetime import datetime, timedelta

from raincheck.core.records import TaskId
from raincheck.engine.execution.attempt import AttemptRunner
from raincheck.engine.tool import EngineDeps
from raincheck.errors import StoreError
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANY_TASK
from raincheck.stores.commit import sweep
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)


class Heartbeat:
    """Extends the leases of the running attempts, three times per lease duration."""

    def __init__(self, deps: EngineDeps, runner: AttemptRunner) -> None:
        self._deps = deps
        self._lease = deps.settings.lease
        self._runner = runner
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
            self._wake_lost(await self._extend(self._deps.store))

    async def _extend(self, store: Store) -> frozenset[TaskId]:
        now = self._deps.clock.now()
        # A settled attempt may still hold its slot while a later attempt of its task holds another one.
        sessions = [session for session in self._runner.sessions if not session.settled.is_set()]
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

    def _wake_lost(self, lost: frozenset[TaskId]) -> None:
        """Wake the attempts that lost their leases. Each checks for itself: by now it may hold the task again."""
        if lost:
            self._runner.notify_changed(lost)

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
            running = ", ".join(
                f"{session.task.log_id} ({session.task.tool.name})" for session in self._runner.sessions
            )
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
        self._wake_lost(lost)

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), self._lease / 3)
        except TimeoutError:
            return


BATCH_SIZE = 100
"""Tasks per sweep or prune, so that other callers get access to the store in between."""


class Sweeper:
    """Sweeps all tasks of the store. Every engine does this, so it does not matter whose process died."""

    def __init__(self, deps: EngineDeps, heartbeat: Heartbeat, runner: AttemptRunner) -> None:
        settings = deps.settings
        self._deps = deps
        self._heartbeat = heartbeat
        self._runner = runner
        self._lease = settings.lease
        # Often enough that the tasks of a dead process resume at about the time when its lease expires. The read is
        # small, but with many machines there are many of them.
        rounds_per_lease = 10 if deps.store.capabilities.make_dispatcher is None else 5
        self._every = min(settings.lease / rounds_per_lease, settings.poll_interval)
        self._prune_every = timedelta(seconds=settings.prune_interval)
        self._pruned_at: datetime | None = None
        self._last_times = deps.clock.now(), deps.clock.monotonic()
        self._trusts_after = deps.clock.monotonic()
        self._was_away = False

    async def run_round(self) -> None:
        """Run one round, and wait until the next."""
        try:
            await self._run_round()
        except StoreError:
            self._was_away = True
            raise

    async def _run_round(self) -> None:
        # Extend our own leases first: if the machine was asleep, our own attempts must not be treated as abandoned.
        await self._heartbeat.extend_if_late()
        # A hint may have been lost, so each attempt checks its task now and then.
        self._runner.notify_changed(ANY_TASK)
        if self._trusts_clock():
            await self._sweep()
        now = self._deps.clock.now()
        # Also when the clock was set back, so that it does not wait for a time that has already passed.
        if self._pruned_at is None or not self._pruned_at <= now < self._pruned_at + self._prune_every:
            self._pruned_at = now
            await self._prune(now)
        await self._deps.clock.sleep(self._every)

    def _trusts_clock(self) -> bool:
        """Return whether expired leases can be trusted.

        They can't for the time of a lease after the clock jumped or the store was unavailable: other workers extend
        theirs first.
        """
        now, elapsed = self._deps.clock.now(), self._deps.clock.monotonic()
        before, elapsed_before = self._last_times
        self._last_times = now, elapsed
        jump = (now - before).total_seconds() - (elapsed - elapsed_before)
        if jump > self._lease / 3:
            logger.warning("the clock jumped ahead by %.0f s: sweeping is suspended for %.0f s", jump, self._lease)
            self._trusts_after = elapsed + self._lease
        elif self._was_away:
            # Other workers could not extend their leases either.
            logger.info("the store was unavailable: sweeping is suspended for %.0f s", self._lease)
            self._trusts_after = elapsed + self._lease
        self._was_away = False
        return elapsed >= self._trusts_after

    async def _sweep(self) -> None:
        deps = self._deps
        while swept := await sweep(deps.store, now=deps.clock.now(), limit=BATCH_SIZE, on_commit=deps.on_commit):
            for task in swept:
                number = task.attempt_number
                logger.info("task %s: swept after attempt %d, and is now %s", task.log_id, number, task.phase)
            if len(swept) < BATCH_SIZE:
                break

    async def _prune(self, now: datetime) -> None:
        pruned = BATCH_SIZE
        while pruned == BATCH_SIZE:
            pruned = len(await self._deps.store.prune(now=now, limit=BATCH_SIZE))
