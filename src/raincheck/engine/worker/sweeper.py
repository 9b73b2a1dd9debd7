"""The sweeper: takes back what dead workers held, ends what is past its deadline, forgets what has expired."""

import logging
from datetime import datetime, timedelta

from raincheck.engine.execution.runner import Runner
from raincheck.engine.settings import Settings
from raincheck.engine.submit import Means
from raincheck.engine.worker.heartbeat import Keeper
from raincheck.errors import StoreError
from raincheck.stores.change_feed import ANYTHING
from raincheck.stores.commit import sweep

logger = logging.getLogger(__name__)

BATCH = 100
"""How many tasks a sweep or a prune takes at a time, so that others get at the store in between."""


class Sweeper:
    """Every engine sweeps for all: it does not matter whose process died."""

    def __init__(self, means: Means, settings: Settings, keeper: Keeper, runner: Runner) -> None:
        self._means = means
        self._keeper = keeper
        self._runner = runner
        self._lease = settings.lease
        # So often that what a dead process held is gone on with about when its lease ends. It is a small read; of many
        # machines, it is many.
        looks = 10 if means.store.capabilities.make_dispatcher is None else 5
        self._every = min(settings.lease / looks, settings.look_every)
        self._prune_every = timedelta(seconds=settings.prune_every)
        self._pruned_at: datetime | None = None
        self._seen = means.clock.now(), means.clock.elapsed()
        self._trusts_after = means.clock.elapsed()
        self._was_away = False

    async def tidy_up(self) -> None:
        """One round, and the wait until the next."""
        try:
            await self._tidy_up()
        except StoreError:
            self._was_away = True
            raise

    async def _tidy_up(self) -> None:
        # First our own leases: if the whole machine was asleep, we should not take our own work for dead.
        await self._keeper.catch_up()
        # A hint may have been lost, so each attempt looks for itself now and then.
        self._runner.poke(ANYTHING)
        if self._trusts_clock():
            await self._sweep()
        now = self._means.clock.now()
        # Also when the clock was set back, so that it does not wait for a time that has been.
        if self._pruned_at is None or not self._pruned_at <= now < self._pruned_at + self._prune_every:
            self._pruned_at = now
            await self._prune(now)
        await self._means.clock.sleep(self._every)

    def _trusts_clock(self) -> bool:
        """Not for the time of a lease after the clock jumped, or the store was away: others extend theirs first."""
        now, elapsed = self._means.clock.now(), self._means.clock.elapsed()
        before, elapsed_before = self._seen
        self._seen = now, elapsed
        jump = (now - before).total_seconds() - (elapsed - elapsed_before)
        if jump > self._lease / 3:
            logger.warning("the clock jumped ahead by %.0f s: nothing is taken back for %.0f s", jump, self._lease)
            self._trusts_after = elapsed + self._lease
        elif self._was_away:
            # Others could not extend their leases either.
            logger.info("the store was away: nothing is taken back for %.0f s", self._lease)
            self._trusts_after = elapsed + self._lease
        self._was_away = False
        return elapsed >= self._trusts_after

    async def _sweep(self) -> None:
        while swept := await sweep(self._means.store, now=self._means.clock.now(), limit=BATCH):
            for task in swept:
                logger.info("task %s was taken back from attempt %d: it is %s", task.shown_id, task.fence, task.phase)
            if len(swept) < BATCH:
                break

    async def _prune(self, now: datetime) -> None:
        pruned = BATCH
        while pruned == BATCH:
            pruned = len(await self._means.store.prune(now=now, limit=BATCH))
