"""The results of a run, and their files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.figure import Figure

FOLDER = Path(__file__).parent / "results"
"""The folder of the results of every run."""

PUBLISHED = Path(__file__).parent / "performance.json"
"""The results that the performance page shows."""


@dataclass(frozen=True, slots=True)
class Results:
    """The figures of one run."""

    at: str
    scale: str
    machine: str
    figures: Sequence[Figure]

    @property
    def bounds(self) -> int:
        return sum(figure.bound is not None for figure in self.figures)

    @property
    def missed(self) -> int:
        return sum(not figure.is_met for figure in self.figures)

    def save(self, path: Path) -> None:
        figures = json.dumps([figure.as_json() for figure in self.figures])
        content = {
            "at": self.at,
            "scale": self.scale,
            "machine": self.machine,
            "figures": json.loads(figures, parse_float=_rounded),
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        content["figures"] = [Figure.of_json(figure) for figure in content["figures"]]
        return cls(**content)


def _rounded(text: str) -> float:
    """Round to four significant digits."""
    return float(f"{float(text):.4g}")
