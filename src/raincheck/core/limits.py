"""The bounds that keep one task, and one owner, from taking more than a share."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from raincheck.core.policies import LONGEST_KEEP
from raincheck.core.records import Task
from raincheck.errors import ConfigurationError, QuotaExceeded

KIB = 1_024
MIB = 1_024 * KIB

LONGEST_WINDOW = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one task: sizes in bytes of JSON, counts, and how long it may be kept."""

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
    """Steps of one task, or of one stay of a process in a state, counted by the engine."""
    artifacts: int = 100
    """Artifacts of one task, counted by the engine."""
    children: int = 1_000
    """Tasks that one task spawns, or a process in one state, counted by the engine."""
    depth: int = 8
    """How many generations a family may have, counted by the engine."""
    ttl: timedelta = timedelta(days=7)
    """The longest time, from creation, for which a caller may ask to have a task kept."""
    notes: int = 10_000
    """History entries after which an attempt's notes are no longer written to the history. The rest always is."""

    def __post_init__(self) -> None:
        if not isinstance(self.ttl, timedelta) or not timedelta(0) <= self.ttl <= LONGEST_KEEP:  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
            raise ConfigurationError(
                f"the longest ttl is a timedelta from 0 to {LONGEST_KEEP.days} days, not {self.ttl!r}"
            )


@dataclass(frozen=True, slots=True)
class Quota:
    """Bounds on one owner in one namespace, counted in the transaction that creates or spawns the task.

    What has been pruned is not counted any more, so tasks should be kept for longer than `window`.
    """

    live: int | None = None
    created: int | None = None
    """How many may be created within `window`."""
    window: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        for name, value in (("live", self.live), ("created", self.created)):
            if value is not None and value < 1:
                raise ConfigurationError(f"a quota of {value} {name} tasks lets nobody in: allow at least one")
        if not timedelta(0) < self.window <= LONGEST_WINDOW:
            raise ConfigurationError(f"a quota's window must be at most {LONGEST_WINDOW.days} days, not {self.window}")

    def check(self, theirs: Collection[Task], now: datetime) -> None:
        """Refuse a new task of an owner whose tasks in the namespace are these.

        Raises:
            QuotaExceeded: they are all that is allowed.
        """
        self.check_live(sum(not task.is_terminal for task in theirs))
        if self.created is not None and len(theirs) >= self.created:
            created = sorted(task.created_at for task in theirs)
            self.check_created(created[-self.created], now)

    def check_live(self, live: int) -> None:
        """Refuse a new task of an owner who has so many live ones.

        Raises:
            QuotaExceeded: that is all that is allowed.
        """
        if self.live is not None and live >= self.live:
            raise QuotaExceeded("live tasks", self.live, None)

    def check_created(self, nth_latest: datetime | None, now: datetime) -> None:
        """Refuse a new task of an owner who created the `created`-th latest one then.

        Raises:
            QuotaExceeded: that is still within the window.
        """
        if self.created is not None and nth_latest is not None and nth_latest > now - self.window:
            raise QuotaExceeded("new tasks", self.created, nth_latest + self.window - now)


NO_QUOTA = Quota()
"""Lets everybody in."""
