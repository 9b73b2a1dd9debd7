"""Policies of a task, and limits on what one task and one owner may use. Pure: the caller supplies the randomness.

A retry policy sets how often a task is retried, and the wait in between. A retention sets how long a task and its
result are kept, and what lifetime a caller may be promised.

A task never expires while it is live. After its end it is kept for `keep`, and at least as long as was promised when it
was created. The lifetime promised meanwhile is never less than the task may run: clients treat creation + ttl as a
backstop.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from raincheck.errors import ConfigurationError, InvalidValue, QuotaExceeded

if TYPE_CHECKING:
    from raincheck.core.records import Task

MAX_WAIT = timedelta(days=365)


class OnInterrupt(StrEnum):
    """What happens to a task whose attempt was interrupted."""

    RETRY = "retry"
    """Another attempt resumes from the last checkpoint."""
    FAIL = "fail"
    """The task fails: running it twice would do harm."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts that may fail without finishing a step, and the wait after each.

    The wait grows from `first_wait` by `factor` up to `max_wait`; `jitter` is the fraction of it (0 to 1) that is
    random.
    """

    attempts: int = 3
    first_wait: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max_wait: timedelta = timedelta(minutes=5)
    jitter: float = 0.5
    on_interrupt: OnInterrupt = OnInterrupt.RETRY

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
            raise ConfigurationError(f"a retry policy needs at least one attempt, not {self.attempts!r}")
        for name, wait in (("first_wait", self.first_wait), ("max_wait", self.max_wait)):
            if not isinstance(wait, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance] - likewise
                raise ConfigurationError(f"a retry's {name} must be a timedelta, not {wait!r}")
        if not timedelta(0) <= self.first_wait <= self.max_wait <= MAX_WAIT:
            raise ConfigurationError(
                f"retry waits must satisfy 0 <= first_wait <= max_wait <= {MAX_WAIT.days} days, "
                f"not first_wait={self.first_wait}, max_wait={self.max_wait}"
            )
        # Written so that NaN fails too.
        if not 1.0 <= self.factor <= 1_000.0:
            raise ConfigurationError(f"a retry's factor must be between 1 and 1000, not {self.factor}")
        if not 0.0 <= self.jitter <= 1.0:
            raise ConfigurationError(f"a retry's jitter must be between 0 and 1, not {self.jitter}")

    def may_retry(self, failures: int) -> bool:
        """Return whether another attempt is allowed after this many failures."""
        return failures < self.attempts

    def wait(self, failures: int, chance: float) -> timedelta:
        """Return how long to wait after the `failures`-th failed attempt.

        `chance` is a random number from 0 (the full wait) to 1 (the shortest).
        """
        if not 0.0 <= chance <= 1.0:
            raise InvalidValue(f"chance must be a number from 0 to 1, not {chance}")
        wait = self.first_wait
        # Step-by-step multiplication stops at the cap, where a power of the factor would overflow.
        for _ in range(failures - 1):
            if wait >= self.max_wait:
                break
            wait = min(wait * self.factor, self.max_wait)
        return wait * (1.0 - self.jitter * chance)


DEFAULT_RETRY = RetryPolicy()

BACKOFF = RetryPolicy(first_wait=timedelta(milliseconds=200), max_wait=timedelta(seconds=5), jitter=0.0)
"""The backoff between retries on an unavailable store or server: the waits grow, but stay bounded."""


def backoff_seconds(tries: int) -> float:
    """Return the seconds to wait after this many retries on something unavailable."""
    return BACKOFF.wait(tries, chance=0.0).total_seconds()


MAX_KEEP = timedelta(days=3_650)


@dataclass(frozen=True, slots=True)
class Retention:
    """`keep` is how long a task is kept after its end; `ttl` is what its caller was promised, counted from creation."""

    keep: timedelta = timedelta(days=1)
    ttl: timedelta | None = None

    def __post_init__(self) -> None:
        for name, value in (("keep", self.keep), ("ttl", self.ttl)):
            if value is not None and not isinstance(value, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
                raise ConfigurationError(f"retention {name} must be a timedelta, not {value!r}")
            if value is not None and not timedelta(0) <= value <= MAX_KEEP:
                raise ConfigurationError(f"retention {name} must be between 0 and {MAX_KEEP.days} days, not {value}")

    def expires_at(self, created_at: datetime, finished_at: datetime) -> datetime:
        """Return when a task that ended at `finished_at` may be deleted."""
        end_of_keep = _later(finished_at, self.keep)
        return end_of_keep if self.ttl is None else max(end_of_keep, _later(created_at, self.ttl))

    def promised_ttl(self, created_at: datetime, deadline_at: datetime | None) -> timedelta | None:
        """Return the ttl to report to a caller while the task is live; None if it is unbounded."""
        if deadline_at is None:
            return None
        return self.expires_at(created_at, deadline_at) - created_at


def _later(moment: datetime, by: timedelta) -> datetime:
    """Return the sum, or the maximum datetime."""
    end = datetime.max.replace(tzinfo=moment.tzinfo)
    return moment + by if by <= end - moment else end


DEFAULT_RETENTION = Retention()


def clamp_ttl(requested: timedelta | None, maximum: timedelta) -> timedelta | None:
    """Return the ttl granted for a requested one: at most the maximum, never negative."""
    if requested is None:
        return None
    return min(max(requested, timedelta(0)), maximum)


KIB = 1_024
MIB = 1_024 * KIB

MAX_WINDOW = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on one task: sizes in bytes of JSON, counts, and the maximum retention."""

    arguments: int = 1 * MIB
    outcome: int = 8 * MIB
    caller: int = 64 * KIB
    step: int = 1 * MIB
    question: int = 64 * KIB
    answer: int = 256 * KIB
    variables: int = 64 * KIB
    artifact: int = 8 * MIB
    open_inputs: int = 100
    steps: int = 10_000
    """Steps of one task, or of one stay of an instance in a state, counted by the engine."""
    artifacts: int = 100
    """Artifacts of one task, counted by the engine."""
    children: int = 1_000
    """Tasks that one task spawns, or an instance in one state, counted by the engine."""
    depth: int = 8
    """The maximum number of generations of a family, counted by the engine."""
    ttl: timedelta = timedelta(days=7)
    """The longest retention, counted from creation, that a caller may request for a task."""
    notes: int = 10_000
    """History entries after which an attempt's notes are no longer written to the history. Other entries always are."""

    def __post_init__(self) -> None:
        if not isinstance(self.ttl, timedelta) or not timedelta(0) <= self.ttl <= MAX_KEEP:  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
            raise ConfigurationError(
                f"the limit on ttl must be a timedelta from 0 to {MAX_KEEP.days} days, not {self.ttl!r}"
            )


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits on one owner in one namespace, counted in the transaction that creates or spawns the task.

    Pruned tasks are no longer counted, so tasks should be kept for longer than `window`.
    """

    live: int | None = None
    created: int | None = None
    """The maximum number of tasks created within `window`."""
    window: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        for name, value in (("live", self.live), ("created", self.created)):
            if value is not None and value < 1:
                raise ConfigurationError(f"a quota of {value} {name} tasks allows no task: set it to at least 1")
        if not timedelta(0) < self.window <= MAX_WINDOW:
            raise ConfigurationError(f"a quota's window must be at most {MAX_WINDOW.days} days, not {self.window}")

    def check(self, tasks: "Collection[Task]", now: datetime) -> None:
        """Check a new task of an owner against the owner's tasks in the namespace.

        Raises:
            QuotaExceeded: the owner has reached the limit.
        """
        self.check_live(sum(not task.is_terminal for task in tasks))
        if self.created is not None and len(tasks) >= self.created:
            created = sorted(task.created_at for task in tasks)
            self.check_created(created[-self.created], now)

    def check_live(self, live: int) -> None:
        """Check a new task of an owner against the owner's number of live tasks.

        Raises:
            QuotaExceeded: the owner has reached the limit.
        """
        if self.live is not None and live >= self.live:
            raise QuotaExceeded("live tasks", self.live, None)

    def check_created(self, nth_latest: datetime | None, now: datetime) -> None:
        """Check a new task of an owner against the creation time of the owner's `created`-th latest task.

        Raises:
            QuotaExceeded: that time is still within the window.
        """
        if self.created is not None and nth_latest is not None and nth_latest > now - self.window:
            raise QuotaExceeded("new tasks", self.created, nth_latest + self.window - now)


NO_QUOTA = Quota()
"""A quota without limits."""
