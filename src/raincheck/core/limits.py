"""Limits on the resources that one task and one owner may use."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from raincheck.core.policies import MAX_KEEP
from raincheck.core.records import Task
from raincheck.errors import ConfigurationError, QuotaExceeded

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

    def check(self, tasks: Collection[Task], now: datetime) -> None:
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
