"""How often a task tries again, and how long it waits in between. Pure: the caller brings the randomness.

How long a task and its result stay, and what a caller may be told about it.

A task never expires while it lives. When it ends, it stays for `keep`, and at least as long as was promised
when it was created. What is promised meanwhile is never less than the task may run: clients treat creation +
ttl as a backstop.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from raincheck.errors import ConfigurationError, InvalidValue

LONGEST_WAIT = timedelta(days=365)


class OnInterrupt(StrEnum):
    """What becomes of a task whose attempt was cut off in the middle."""

    RETRY = "retry"
    """Another attempt goes on from the last checkpoint."""
    FAIL = "fail"
    """The task fails: running it twice would do harm."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How many attempts may go wrong without finishing a step, and the wait after each.

    The wait grows from `first` by `factor` up to `most`; `jitter` is the part of it (0 to 1) that is left to chance.
    """

    attempts: int = 3
    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    most: timedelta = timedelta(minutes=5)
    jitter: float = 0.5
    on_interrupt: OnInterrupt = OnInterrupt.RETRY

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
            raise ConfigurationError(f"a task needs at least one attempt, not {self.attempts!r}")
        for name, wait in (("first", self.first), ("most", self.most)):
            if not isinstance(wait, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance] - likewise
                raise ConfigurationError(f"a retry's {name} wait is a timedelta, not {wait!r}")
        if not timedelta(0) <= self.first <= self.most <= LONGEST_WAIT:
            raise ConfigurationError(
                f"retry waits must satisfy 0 <= first <= most <= {LONGEST_WAIT.days} days, "
                f"not first={self.first}, most={self.most}"
            )
        # Written so that NaN fails too.
        if not 1.0 <= self.factor <= 1_000.0:
            raise ConfigurationError(f"a retry's factor must be between 1 and 1000, not {self.factor}")
        if not 0.0 <= self.jitter <= 1.0:
            raise ConfigurationError(f"a retry's jitter must be between 0 and 1, not {self.jitter}")

    def may_retry(self, failures: int) -> bool:
        """Whether another attempt is allowed after so many have gone wrong."""
        return failures < self.attempts

    def wait(self, failures: int, chance: float) -> timedelta:
        """How long to wait after the attempt that was the `failures`-th to go wrong.

        `chance` is a random number from 0 (the full wait) to 1 (the shortest).
        """
        if not 0.0 <= chance <= 1.0:
            raise InvalidValue(f"chance is a random number from 0 to 1, not {chance}")
        wait = self.first
        # Multiplying step by step stops at the cap, where a power of the factor would overflow.
        for _ in range(failures - 1):
            if wait >= self.most:
                break
            wait = min(wait * self.factor, self.most)
        return wait * (1.0 - self.jitter * chance)


DEFAULT_RETRY = RetryPolicy()

PAUSES = RetryPolicy(first=timedelta(milliseconds=200), most=timedelta(seconds=5), jitter=0.0)
"""The waits between tries at a store or a server that is away: they grow, and stay bounded however long that takes."""


def pause_after(tries: int) -> float:
    """How many seconds to wait after so many tries at something that is away."""
    return PAUSES.wait(tries, chance=0.0).total_seconds()


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
