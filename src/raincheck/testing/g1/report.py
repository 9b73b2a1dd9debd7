"""What a run of the suite found."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from raincheck.testing.g1.check import Check
from raincheck.testing.g1.messages import VERSION, Message
from raincheck.testing.g1.verdicts import Outcome


@dataclass(frozen=True)
class Finding:
    """How a check ended, and why if it did not pass."""

    check: Check
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.check.id,
            "level": self.check.level,
            "section": self.check.section,
            "requirement": self.check.sentence,
            "outcome": self.outcome,
            "detail": self.detail,
            "seconds": round(self.seconds, 3),
        }


@dataclass
class Report:
    """All that a run found of one server."""

    target: str
    server: Message = field(default_factory=dict[str, Any])
    findings: list[Finding] = field(default_factory=list[Finding])
    seconds: float = 0.0

    def with_outcome(self, outcome: Outcome) -> Sequence[Finding]:
        return [finding for finding in self.findings if finding.outcome is outcome]

    @property
    def counts(self) -> dict[Outcome, int]:
        found = Counter(finding.outcome for finding in self.findings)
        return {outcome: found[outcome] for outcome in Outcome}

    @property
    def has_failed(self) -> bool:
        return bool(self.counts[Outcome.FAILED])

    @property
    def summary(self) -> str:
        counts = self.counts
        parts = [
            f"{counts[Outcome.PASSED]} passed",
            f"{counts[Outcome.FAILED]} failed",
            f"{counts[Outcome.WARNING]} {'warning' if counts[Outcome.WARNING] == 1 else 'warnings'}",
            f"{counts[Outcome.SKIPPED]} skipped",
        ]
        return f"{', '.join(parts)} in {self.seconds:.1f} s"

    def as_json(self) -> dict[str, Any]:
        return {
            "suite": "g1",
            "protocolVersion": VERSION,
            "target": self.target,
            "server": self.server,
            "summary": {str(outcome): count for outcome, count in self.counts.items()},
            "seconds": round(self.seconds, 3),
            "checks": [finding.as_json() for finding in self.findings],
        }
