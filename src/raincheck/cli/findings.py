"""Findings as a table on a terminal: colours only where there is one."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.telling import WIDE
from raincheck.testing.g1.needs import NO_TOOL
from raincheck.testing.g1.report import Finding, Report
from raincheck.testing.g1.verdicts import Outcome

STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.WARNING: "yellow",
    Outcome.SKIPPED: "dim",
}


def print_findings(report: Report, console: Console | None = None) -> None:
    """Print what was found: a line for each check, with the reason where it did not pass."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDE, color_system=None)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("outcome", "check", "level"):
        table.add_column(title, no_wrap=True)
    table.add_column("requirement", ratio=1)
    for finding in report.findings:
        style = STYLES[finding.outcome]
        table.add_row(Text(finding.outcome, style), finding.check.id, finding.check.level, _words(finding, style))
    console.print(table)
    console.print()
    console.print(Text(f"{_name(report)}: {report.summary}", "bold red" if report.has_failed else "bold green"))
    without = sum(finding.outcome is Outcome.SKIPPED and NO_TOOL in finding.detail for finding in report.findings)
    if without:
        console.print(f"{without} checks had no tool to call: say with --tools FILE which of yours to call for what")


def _words(finding: Finding, style: str) -> Text:
    words = Text(finding.check.sentence)
    if finding.detail:
        words.append(f"\n{finding.detail}", style)
    return words


def _name(report: Report) -> str:
    said = " ".join(str(report.server[key]) for key in ("name", "version") if report.server.get(key))
    return f"{said} ({report.target})" if said else report.target
