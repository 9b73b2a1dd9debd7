"""The sweeper: recovers tasks of dead workers, ends tasks past their deadline, and prunes expired ones."""

import logging
from datetime import datetime, timedelta

from raincheck.engine.execution.runner import AttemptRunner
from raincheck.engine.settings import Settings
from raincheck.engine.submit import EngineDeps
from raincheck.engine.worker.heartbeat import Heartbeat
from raincheck.errors import StoreError
from raincheck.stores.change_feed import ANY_TASK
from raincheck.stores.commit import sweep

logger = logging.getLogger(__name__)

BATCH_SIZE = 100
"""Tasks per sweep or prune, so that other callers get access to the store in between."""


class Sweeper:
    """Sweeps all tasks of the store. Every engine does this, so it does not matter whose process died."""

    def __init__(self, deps: EngineDeps, settings: Settings, heartbeat: Heartbeat, runner: AttemptRunner) -> None:
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
        while swept := await sweep(self._deps.store, now=self._deps.clock.now(), limit=BATCH_SIZE):
            for task in swept:
                number = task.attempt_number
                logger.info("task %s: swept after attempt %d, and is now %s", task.log_id, number, task.phase)
            if len(swept) < BATCH_SIZE:
                break

    async def _prune(self, now: datetime) -> None:
        pruned = BATCH_SIZE
        while pruned == BATCH_SIZE:
            pruned = len(await self._deps.store.prune(now=now, limit=BATCH_SIZE))
