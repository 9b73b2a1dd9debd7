"""A figure: what was measured, next to what it is measured against, and the bound that it must keep."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, Self, TypeAlias

Side: TypeAlias = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class Bound:
    """What a value must keep."""

    side: Side
    limit: float

    def is_met_by(self, value: float) -> bool:
        return value >= self.limit if self.side == "at least" else value <= self.limit

    def __str__(self) -> str:
        return f"{self.side} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured, in each round."""

    name: str
    what: str
    unit: str
    measured: Sequence[float]
    against: Sequence[float] | None
    """In the same rounds. None where it is not measured against anything, but in its unit."""
    bound: Bound | None = None
    """Of its ratio, or else of what was measured. None where it only informs."""
    server: str | None = None
    """Whose it is, where the same is measured of many."""

    @property
    def title(self) -> str:
        return self.name if self.server is None else f"{self.name}, {self.server}"

    @property
    def value(self) -> float:
        """Its ratio, or else what was measured: in the median of the rounds."""
        return median(self.values)

    @property
    def values(self) -> list[float]:
        """Of each round by itself, from low to high: what else the machine did in a round fell on both sides."""
        if self.against is None:
            return sorted(self.measured)
        return sorted(one / other for one, other in zip(self.measured, self.against, strict=True))

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and the highest, if there is more than one: far apart on a machine that is busy with others."""
        return (self.values[0], self.values[-1]) if len(self.values) > 1 else None

    @property
    def is_met(self) -> bool:
        return self.bound is None or self.bound.is_met_by(self.value)

    @property
    def verdict(self) -> str:
        """Not clear, if some rounds kept the bound and others did not."""
        if self.bound is None:
            return ""
        is_clear = len({self.bound.is_met_by(value) for value in self.values}) == 1
        return ("met" if self.is_met else "MISSED") + ("" if is_clear else ", not clear")

    def as_json(self) -> Mapping[str, object]:
        """Itself, and what follows from it, for those who only read it."""
        return asdict(self) | {"value": self.value, "spread": self.spread, "is_met": self.is_met}

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Self:
        own: dict[str, Any] = {name: content[name] for name in cls.__slots__}
        own["bound"] = None if own["bound"] is None else Bound(**own["bound"])
        return cls(**own)


def table(figures: Sequence[Figure]) -> str:
    """The figures, one line each, for people."""
    head = ("figure", "measured", "against", "unit", "ratio", "spread", "bound", "")
    rows = [head, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    is_text = (True, False, False, True, False, True, True, True)
    lines = [
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(row, widths, is_text, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.title,
        number(median(figure.measured)),
        "" if figure.against is None else number(median(figure.against)),
        figure.unit,
        "" if figure.against is None else number(figure.value),
        "" if figure.spread is None else "-".join(map(number, figure.spread)),
        "" if figure.bound is None else str(figure.bound),
        figure.verdict,
    )


def number(value: float) -> str:
    """A number with as many digits as matter."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}" if value == 0 or abs(value) >= 0.1 else f"{value:.2g}"
