"""The outcome of an attack: what was counted, and what must not have happened."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """What an attack did, and the promises that it found broken."""

    counts: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])
    """One sentence each, with what is needed to find it again."""
