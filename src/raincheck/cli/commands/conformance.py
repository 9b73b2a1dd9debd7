"""`raincheck conformance`: check whether a server conforms to the protocol.

The selected checks run against the named server. Findings are printed as a table, with colours only on a terminal.
"""

import fnmatch
import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from raincheck.cli import FAILED
from raincheck.cli.exit_codes import UsageError, fail, run_with_signals
from raincheck.cli.options import parse_headers
from raincheck.cli.output.results import make_console
from raincheck.conformance.caller import Timings
from raincheck.conformance.check import NO_TOOL_PREFIX, Check
from raincheck.conformance.checks import CHECKS
from raincheck.conformance.connection import CommunicationError
from raincheck.conformance.requirements import CheckOutcome
from raincheck.conformance.roles import DEFAULT_ROLES, Roles, load_roles
from raincheck.conformance.run import CheckResult, Report, run_suite
from raincheck.conformance.transport import ConformanceTarget

STYLES = {
    CheckOutcome.PASSED: "green",
    CheckOutcome.FAILED: "bold red",
    CheckOutcome.WARNING: "yellow",
    CheckOutcome.SKIPPED: "dim",
}


def print_findings(report: Report) -> None:
    """Print a line for each check, with the reason if it did not pass."""
    console = make_console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("outcome", "check", "level"):
        table.add_column(title, no_wrap=True)
    table.add_column("requirement", ratio=1)
    for finding in report.results:
        style = STYLES[finding.outcome]
        table.add_row(
            Text(finding.outcome, style), finding.check.id, finding.check.level, _requirement_text(finding, style)
        )
    console.print(table)
    console.print()
    console.print(Text(f"{_name(report)}: {report.summary}", "bold red" if report.has_failed else "bold green"))
    without = sum(
        finding.outcome is CheckOutcome.SKIPPED and NO_TOOL_PREFIX in finding.detail for finding in report.results
    )
    if without:
        console.print(f"{without} checks had no tool to call: assign your server's tools with --tools FILE")


def _requirement_text(finding: CheckResult, style: str) -> Text:
    text = Text(finding.check.requirement)
    if finding.detail:
        text.append(f"\n{finding.detail}", style)
    return text


def _name(report: Report) -> str:
    server_name = " ".join(str(report.server[key]) for key in ("name", "version") if report.server.get(key))
    return f"{server_name} ({report.target})" if server_name else report.target


async def run(
    target: ConformanceTarget, roles: Roles, checks: list[Check], timings: Timings, *, shows_bar: bool
) -> Report:
    """Run the checks, with a progress bar on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (shows_bar and console.is_terminal)) as bar:
        line = bar.add_task(f"checking {target}", total=len(checks))

        def on_result(finding: CheckResult) -> None:
            bar.update(line, advance=1, description=finding.check.id)

        return await run_suite(target, roles, checks=checks, timings=timings, on_result=on_result)


def make_target(words: list[str], headers: list[str], other_headers: list[str]) -> ConformanceTarget:
    is_url = len(words) == 1 and words[0].startswith(("http://", "https://"))
    make = partial(ConformanceTarget, headers=parse_headers(headers), other_headers=parse_headers(other_headers))
    return make(url=words[0]) if is_url else make(command=words)


def select_checks(globs: list[str] | None) -> list[Check]:
    """Return the checks whose ids match one of the globs."""
    chosen = [check for check in CHECKS if not globs or any(fnmatch.fnmatchcase(check.id, glob) for glob in globs)]
    if not chosen:
        raise ValueError(f"no check has an id that matches {', '.join(map(repr, globs or []))}")
    return chosen


RESPONSE_TIMEOUT = 10.0
"""The maximum number of seconds for a response."""

EPILOG = """
Examples:

\b
  raincheck conformance 2025-11-25 http://127.0.0.1:8000/mcp
  raincheck conformance 2025-11-25 -- python server.py
  raincheck conformance 2025-11-25 --tools roles.toml --only 'v2025-cancel-*' URL
  raincheck conformance 2025-11-25 --header 'Authorization: Bearer ONE' \\
                           --other-header 'Authorization: Bearer TWO' URL

Exit codes: 0 no check failed (warnings are allowed); 1 a check failed; 2 the checks could not be run.
"""


def check_v2025(
    target: Annotated[
        list[str],
        typer.Argument(metavar="TARGET", help="The server: its URL or, after --, the command that starts it."),
    ],
    header: Annotated[
        list[str] | None, typer.Option(metavar="HEADER", help="An HTTP header to send, as 'Name: value'. Repeatable.")
    ] = None,
    other_header: Annotated[
        list[str] | None,
        typer.Option(metavar="HEADER", help="A header of another caller, who must see no task of the first."),
    ] = None,
    tools: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A TOML or JSON file that assigns the server's tools to the checks."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only run the checks whose ids match. Repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="The maximum time for a response.")
    ] = RESPONSE_TIMEOUT,
) -> None:
    """Check a server that implements the tasks of MCP 2025-11-25, over Streamable HTTP or stdio."""
    try:
        checked = make_target(target, header or [], other_header or [])
        roles = DEFAULT_ROLES if tools is None else load_roles(tools)
        checks = select_checks(only)
    except (UsageError, ValueError, OSError) as error:
        fail(str(error), as_json=as_json)
    try:
        report = run_with_signals(run(checked, roles, checks, Timings(timeout=timeout), shows_bar=not as_json))
    except CommunicationError as error:
        fail(f"{checked}: {error}", as_json=as_json)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        print_findings(report)
    raise typer.Exit(FAILED if report.has_failed else 0)
