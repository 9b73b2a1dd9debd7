"""Faults that were found, each kind of them once."""

import re
from collections import Counter

from tests.adversary.fuzz.checks import shorten
from tests.adversary.outcome import Outcome

_VARYING = re.compile(r"'?[0-9a-f]{8,}'?|\d+|b?'(?:[^'\\]|\\.)*'")


class Findings:
    """Writes violations to an outcome: the first of each kind, with what was sent, and how many there were."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._kinds: Counter[str] = Counter()

    def add(self, where: str, faults: list[str], sent: bytes = b"") -> None:
        """Record what is wrong with the answer to what was sent."""
        for fault in faults:
            kind = _VARYING.sub("*", fault)
            self._kinds[kind] += 1
            if self._kinds[kind] == 1:
                what = f" after {shorten(sent)}" if sent else ""
                self._outcome.violations.append(f"{where}: {fault}{what}")

    def close(self) -> None:
        """Add how often each kind was found, where it was more than once."""
        for kind, count in self._kinds.items():
            if count > 1:
                self._outcome.violations.append(f"{count} times in all: {kind[:200]}")
