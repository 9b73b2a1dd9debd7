"""A figure: two medians, their ratio, and the bound that it must keep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Literal, TypeAlias

Side: TypeAlias = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class Bound:
    """What a ratio must keep."""

    side: Side
    limit: float

    def is_met_by(self, ratio: float) -> bool:
        return ratio >= self.limit if self.side == "at least" else ratio <= self.limit

    def __str__(self) -> str:
        return f"{self.side} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured, next to what it was measured against. Both lists are in the order of the rounds."""

    name: str
    what: str
    unit: str
    measured: Sequence[float]
    against: Sequence[float]
    bound: Bound | None
    """None where it only informs."""

    @property
    def ratio(self) -> float:
        return median(self.measured) / median(self.against)

    @property
    def spread(self) -> tuple[float, float] | None:
        """Between what the middle half of the rounds' own ratios lies: wide on a machine that is busy with others."""
        ratios = [one / other for one, other in zip(self.measured, self.against, strict=True)]
        if len(ratios) < 4:
            return None
        low, _, high = quantiles(ratios, n=4)
        return low, high

    @property
    def is_met(self) -> bool:
        return self.bound is None or self.bound.is_met_by(self.ratio)

    @property
    def verdict(self) -> str:
        return "" if self.bound is None else "met" if self.is_met else "MISSED"

    def as_json(self) -> Mapping[str, object]:
        return {
            "name": self.name,
            "what": self.what,
            "unit": self.unit,
            "measured": list(self.measured),
            "against": list(self.against),
            "ratio": self.ratio,
            "spread": self.spread,
            "bound": None if self.bound is None else {"side": self.bound.side, "limit": self.bound.limit},
            "met": self.is_met,
        }


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
    measured, against = median(figure.measured), median(figure.against)
    ratio = f"{figure.ratio:.2f}" if figure.ratio >= 0.1 else f"{figure.ratio:.4f}"
    spread = "" if figure.spread is None else "{:.2f}-{:.2f}".format(*figure.spread)
    return (
        figure.name,
        _number(measured),
        _number(against),
        figure.unit,
        ratio,
        spread,
        "" if figure.bound is None else str(figure.bound),
        figure.verdict,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
