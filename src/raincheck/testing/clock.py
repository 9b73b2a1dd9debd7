"""A clock that goes when told."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Stands still until it is moved. Going backwards is allowed: real clocks do it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> datetime:
        """Move by so many seconds, and return the time then."""
        self._now += timedelta(seconds=seconds)
        return self._now

    def jump_to(self, moment: datetime) -> datetime:
        self._now = moment
        return self._now
