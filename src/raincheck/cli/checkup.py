"""What a checkup finds: a line for each thing that was looked at, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.telling import make_console


class Verdict(StrEnum):
    """How something is."""

    OK = "ok"
    WARN = "warn"
    """It may become a problem, or may be one: as far as can be known from here."""
    BAD = "bad"
    """Tasks are held up, or will be."""


STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.BAD: "bold red"}


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


def print_checkup(where: str, findings: list[Finding], console: Console | None = None) -> None:
    """Print a line for each finding, and what to do below those that are not fine."""
    console = console or make_console()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for finding in findings:
        said = Text(finding.said)
        if finding.do is not None:
            said.append(f"\n-> {finding.do}", "bold")
        table.add_row(Text(finding.verdict, STYLES[finding.verdict]), finding.name, said)
    console.print(table)
    console.print()
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    console.print(Text(f"{where}: {summary}", STYLES[worst_of(findings)]), soft_wrap=True)
