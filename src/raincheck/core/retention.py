"""How long a task and its result stay, and what a caller may be told about it.

A task never expires while it lives. When it ends, it stays for `keep`, and at least as long as was promised
when it was created. What is promised meanwhile is never less than the task may run: clients treat creation +
ttl as a backstop.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from raincheck.errors import ConfigurationError

LONGEST_KEEP = timedelta(days=3_650)


@dataclass(frozen=True, slots=True)
class Retention:
    """`keep` is how long a task stays after its end; `ttl` what its caller was promised, counted from creation."""

    keep: timedelta = timedelta(days=1)
    ttl: timedelta | None = None

    def __post_init__(self) -> None:
        for name, value in (("keep", self.keep), ("ttl", self.ttl)):
            if value is not None and not isinstance(value, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
                raise ConfigurationError(f"retention {name} is a timedelta, not {value!r}")
            if value is not None and not timedelta(0) <= value <= LONGEST_KEEP:
                raise ConfigurationError(
                    f"retention {name} must be between 0 and {LONGEST_KEEP.days} days, not {value}"
                )

    def expires_at(self, created_at: datetime, finished_at: datetime) -> datetime:
        """When a task that ended then may be forgotten."""
        kept = _later(finished_at, self.keep)
        return kept if self.ttl is None else max(kept, _later(created_at, self.ttl))

    def promised_ttl(self, created_at: datetime, deadline_at: datetime | None) -> timedelta | None:
        """The ttl to tell a caller while the task lives; None where nothing bounds it."""
        if deadline_at is None:
            return None
        return self.expires_at(created_at, deadline_at) - created_at


def _later(moment: datetime, by: timedelta) -> datetime:
    """The sum, or the end of time."""
    end = datetime.max.replace(tzinfo=moment.tzinfo)
    return moment + by if by <= end - moment else end


DEFAULT_RETENTION = Retention()


def clamp_ttl(requested: timedelta | None, maximum: timedelta) -> timedelta | None:
    """What a caller gets who asks for a ttl: at most the maximum, never less than nothing."""
    if requested is None:
        return None
    return min(max(requested, timedelta(0)), maximum)
