"""How an engine works: how much at once, how often it looks, how long it waits. Times are in seconds."""

from dataclasses import dataclass, field

from raincheck.core.limits import Limits, Quota
from raincheck.engine.tool_checks import check_count, check_kind, check_seconds
from raincheck.errors import ConfigurationError
from raincheck.stores.requests import LONGEST_LEASE, PAGE_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be set for an engine. The defaults suit a server with a file of its own."""

    concurrency: int = 32
    """How many attempts run at once in this process. Most bodies wait for others most of the time."""
    queues: frozenset[str] | None = None
    """The tools whose tasks this process runs, by name: each has a queue of its own. None is all of them."""
    lease: float = 15.0
    """How long a task stays with a process that has died. It is extended three times in that time."""
    patience: float = 2.0
    """How long a body that waits keeps its place before it parks, if nobody else needs it."""
    grace: float = 10.0
    """How long bodies may go on when the engine is told to stop, before they are handed back."""
    report_every: float = 0.25
    """How often progress is written at most."""
    look_every: float = 5.0
    """How often to look for work that nobody told of."""
    prune_every: float = 60.0
    """How often to forget what has expired."""
    limits: Limits = field(default_factory=Limits)
    """Bounds on one task."""
    quota: Quota = field(default_factory=lambda: Quota(live=10_000))
    """Bounds on one owner."""

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency, least=1, most=PAGE_LIMIT)
        if self.queues is not None:
            check_kind("queues", self.queues, frozenset)
            if not self.queues:
                raise ConfigurationError("queues names no tool: name some, or leave it out for all of them")
        check_kind("limits", self.limits, Limits)
        check_kind("quota", self.quota, Quota)
        for name in ("lease", "patience", "grace", "report_every", "look_every", "prune_every"):
            least = 0.0 if name in ("patience", "grace", "report_every") else 0.01
            check_seconds(name, getattr(self, name), least=least, most=LONGEST_LEASE.total_seconds())
