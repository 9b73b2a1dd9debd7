"""`raincheck conformance`: whether a server does what the protocol says.

Findings as a table on a terminal: colours only where there is one.

Running the checks that somebody chose, of a server that they named.
"""

import fnmatch
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from raincheck.cli.exit_codes import refuse, run_tidily
from raincheck.cli.options import read_headers
from raincheck.cli.output.results import WIDE
from raincheck.conformance.caller import Pace
from raincheck.conformance.check import NO_TOOL, Check
from raincheck.conformance.checks import CHECKS
from raincheck.conformance.outcome import Outcome
from raincheck.conformance.roles import Roles
from raincheck.conformance.run import Finding, Report, run_suite
from raincheck.conformance.transport import Target

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


async def run(target: Target, roles: Roles, checks: list[Check], pace: Pace, *, shows_bar: bool) -> Report:
    """Run the checks, with a bar on a terminal meanwhile."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (shows_bar and console.is_terminal)) as bar:
        line = bar.add_task(f"checking {target}", total=len(checks))

        def told(finding: Finding) -> None:
            bar.update(line, advance=1, description=finding.check.id)

        return await run_suite(target, roles, checks=checks, pace=pace, told=told)


def make_target(words: list[str], headers: list[str], other_headers: list[str]) -> Target:
    is_url = len(words) == 1 and words[0].startswith(("http://", "https://"))
    ours, others = read_headers(headers), read_headers(other_headers)
    if is_url:
        return Target(url=words[0], headers=ours, other_headers=others)
    return Target(command=words, headers=ours, other_headers=others)


def choose(globs: list[str] | None) -> list[Check]:
    """The checks whose ids fit one of the globs."""
    chosen = [check for check in CHECKS if not globs or any(fnmatch.fnmatchcase(check.id, glob) for glob in globs)]
    if not chosen:
        raise ValueError(f"no check has an id like {', '.join(map(repr, globs or []))}")
    return chosen


FAILED = 1

ANSWERED_WITHIN = 10.0
"""Seconds that an answer may take."""

# What follows a line with a backspace alone is printed as it stands.
EPILOG = """
Examples:

\b
  raincheck conformance g1 http://127.0.0.1:8000/mcp
  raincheck conformance g1 -- python server.py
  raincheck conformance g1 --tools roles.toml --only 'g1-cancel-*' URL
  raincheck conformance g1 --header 'Authorization: Bearer ONE' \\
                           --other-header 'Authorization: Bearer TWO' URL

It ends with 0 if nothing failed (warnings are allowed), 1 if something failed, 2 if it could not be run.
"""


def g1(
    target: Annotated[
        list[str],
        typer.Argument(metavar="TARGET", help="The server: its URL, or after -- the command that starts it."),
    ],
    header: Annotated[
        list[str] | None, typer.Option(metavar="HEADER", help="A header to send, 'Name: value'. Repeatable.")
    ] = None,
    other_header: Annotated[
        list[str] | None, typer.Option(metavar="HEADER", help="A header of somebody else, who must see nothing.")
    ] = None,
    tools: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Which tools to call for what: a TOML or JSON file.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only the checks with such an id. Repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long an answer may take.")
    ] = ANSWERED_WITHIN,
) -> None:
    """Check a server of the tasks of MCP 2025-11-25 ("G1"), over Streamable HTTP or stdio."""
    # The suite and what it talks with take as long to import as all the rest. Other commands do without it.
    from raincheck.conformance.caller import Pace
    from raincheck.conformance.outcome import Trouble
    from raincheck.conformance.roles import DEFAULTS, load_roles

    try:
        checked = make_target(target, header or [], other_header or [])
        roles = DEFAULTS if tools is None else load_roles(tools)
        checks = choose(only)
    except (ValueError, OSError) as error:
        refuse(str(error), as_json=as_json)
    try:
        report = run_tidily(run(checked, roles, checks, Pace(timeout=timeout), shows_bar=not as_json))
    except Trouble as trouble:
        refuse(f"{checked}: {trouble}", as_json=as_json)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        print_findings(report)
    raise typer.Exit(FAILED if report.has_failed else 0)
