"""The database's clock, as it is known here: whatever this machine's says, leases on all machines end by one."""

from datetime import datetime, timedelta
from typing import NamedTuple

from raincheck.clock import SystemClock

DRIFT = 0.0005
"""Seconds by which a machine's seconds may be off each second. Most are ten times better."""


class Reading(NamedTuple):
    """What the database's clock said, when, and by how many seconds that may be off."""

    moment: datetime
    elapsed: float
    doubt: float


class DatabaseClock(SystemClock):
    """Tells the database's time between two looks at it, by the seconds that have passed here."""

    def __init__(self) -> None:
        # Replaced and never changed: other threads ask it too.
        self._reading: Reading | None = None

    def now(self) -> datetime:
        reading = self._reading
        if reading is None:
            return super().now()
        return reading.moment + timedelta(seconds=self.elapsed() - reading.elapsed)

    def read(self, moment: datetime, asked: float, answered: float) -> None:
        """Take note of what the clock said at some time between two moments here, if that tells more than is known."""
        doubt = max(0.0, answered - asked) / 2
        known, new = self._reading, Reading(moment, asked + doubt, doubt)
        if known is None:
            self._reading = new
            return
        # What is known becomes doubtful, as seconds pass here.
        allowed = known.doubt + DRIFT * (new.elapsed - known.elapsed)
        expected = known.moment + timedelta(seconds=new.elapsed - known.elapsed)
        # A reading that can't be true together with what is known proves it wrong: this machine slept, or the
        # database's clock was set.
        is_proof = abs((moment - expected).total_seconds()) > doubt + allowed
        if is_proof or doubt <= allowed:
            self._reading = new
