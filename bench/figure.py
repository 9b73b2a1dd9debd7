"""A figure: what was measured, what it is compared with, and its bound."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, Self, TypeAlias

Side: TypeAlias = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit for a value."""

    side: Side
    limit: float

    def is_met_by(self, value: float) -> bool:
        return value >= self.limit if self.side == "at least" else value <= self.limit

    def __str__(self) -> str:
        return f"{self.side} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """The measurements of one thing, one for each round."""

    name: str
    what: str
    unit: str
    measured: Sequence[float]
    against: Sequence[float] | None
    """The comparison, in the same rounds. None if the figure is an absolute value in its unit."""
    bound: Bound | None = None
    """The bound of its ratio, or else of the measured value. None if it has no aim."""
    server: str | None = None
    """The server that was measured, if several are."""

    @property
    def title(self) -> str:
        return self.name if self.server is None else f"{self.name}, {self.server}"

    @property
    def value(self) -> float:
        """The median of the rounds: of the ratio, or else of the measured value."""
        return median(self.values)

    @property
    def values(self) -> list[float]:
        """The value of each round, ascending. Other load on the machine in a round affects both sides of its ratio."""
        if self.against is None:
            return sorted(self.measured)
        return sorted(measured / against for measured, against in zip(self.measured, self.against, strict=True))

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and the highest value, if there are several. They are far apart on a busy machine."""
        return (self.values[0], self.values[-1]) if len(self.values) > 1 else None

    @property
    def is_met(self) -> bool:
        return self.bound is None or self.bound.is_met_by(self.value)

    @property
    def verdict(self) -> str:
        """Whether the bound is met. It is not clear if some rounds met it and others did not."""
        if self.bound is None:
            return ""
        is_clear = len({self.bound.is_met_by(value) for value in self.values}) == 1
        return ("met" if self.is_met else "MISSED") + ("" if is_clear else ", not clear")

    def as_json(self) -> Mapping[str, object]:
        """Return the figure as JSON, with its computed values."""
        return asdict(self) | {"value": self.value, "spread": self.spread, "is_met": self.is_met}

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Self:
        fields: dict[str, Any] = {name: content[name] for name in cls.__slots__}
        fields["bound"] = None if fields["bound"] is None else Bound(**fields["bound"])
        return cls(**fields)


def table(figures: Sequence[Figure]) -> str:
    """Return a text table of the figures, one line each."""
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
    """Format a number with its significant digits."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}" if value == 0 or abs(value) >= 0.1 else f"{value:.2g}"
