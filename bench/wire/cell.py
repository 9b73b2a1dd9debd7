"""A cell of the table: what one server did of one operation, next to the plain call that it is measured against."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.figure import Bound, Figure

AIMS: Mapping[tuple[str, str, int], float] = {
    ("SQLite FULL", "create", 16): 0.60,
    ("SQLite FULL", "get", 16): 1.0,
    ("SQLite FULL", "all done", 16): 0.50,
    ("SQLite FULL", "result", 1): 0.33,
    ("PostgreSQL, 1 w", "create", 16): 0.45,
    ("PostgreSQL, 1 w", "get", 16): 0.7,
    ("PostgreSQL, 1 w", "all done", 16): 0.35,
    ("PostgreSQL, 1 w", "result", 1): 0.25,
}
"""What each should be at least, as a part of the SDK's plain call."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Rates, in the order of the rounds."""

    server: str
    operation: str
    """`call` is the plain call of one that has no tasks."""
    callers: int
    measured: Sequence[float]
    against: Sequence[float]

    @property
    def aim(self) -> float | None:
        return AIMS.get((self.server, self.operation, self.callers))

    @property
    def ratio(self) -> float:
        """The median of the rounds' own ratios: what else the machine did in a round fell on both sides."""
        return median(self.ratios)

    @property
    def ratios(self) -> list[float]:
        return sorted(one / other for one, other in zip(self.measured, self.against, strict=True))

    @property
    def figure(self) -> Figure:
        what = f"{self.operation} by {self.callers} at once on {self.server}, against a plain call"
        bound = None if self.aim is None else Bound("at least", self.aim)
        name = f"{self.operation} x{self.callers}, {self.server}"
        return Figure(name, what, "1/s", self.measured, self.against, bound)
