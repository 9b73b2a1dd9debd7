"""What a checkup finds: a line for each thing that was looked at, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How something is."""

    OK = "ok"
    WARN = "warn"
    """It may become a problem, or may be one: as far as can be known from here."""
    BAD = "bad"
    """Tasks are held up, or will be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    said: str
    do: str | None = None
    """What to do about it; None where it is fine."""

    @classmethod
    def ok(cls, name: str, said: str) -> "Finding":
        return cls(name, Verdict.OK, said)

    @classmethod
    def warn(cls, name: str, said: str, do: str) -> "Finding":
        return cls(name, Verdict.WARN, said, do)

    @classmethod
    def bad(cls, name: str, said: str, do: str) -> "Finding":
        return cls(name, Verdict.BAD, said, do)


def worst_of(findings: list[Finding]) -> Verdict:
    """How it is on the whole."""
    found = {finding.verdict for finding in findings}
    return next((one for one in (Verdict.BAD, Verdict.WARN) if one in found), Verdict.OK)
