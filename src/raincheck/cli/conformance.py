"""`raincheck conformance`: whether a server does what the protocol says."""

import asyncio
import fnmatch
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from raincheck.cli.endings import refuse
from raincheck.cli.findings import print_findings
from raincheck.testing.g1.caller import Pace
from raincheck.testing.g1.check import Check
from raincheck.testing.g1.checks import CHECKS
from raincheck.testing.g1.report import Finding, Report
from raincheck.testing.g1.roles import DEFAULTS, Roles, load_roles
from raincheck.testing.g1.running import run_suite
from raincheck.testing.g1.target import Target
from raincheck.testing.g1.verdicts import Trouble

FAILED = 1
UNUSABLE = 2

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

commands = typer.Typer(help="Check a server against the protocol.", no_args_is_help=True, rich_markup_mode=None)


@commands.callback()
def conformance() -> None:
    """Check a server against the protocol."""


@commands.command(epilog=EPILOG)
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
    ] = Pace.timeout,
) -> None:
    """Check a server of the tasks of MCP 2025-11-25 ("G1"), over Streamable HTTP or stdio."""
    try:
        checked = make_target(target, header or [], other_header or [])
        roles = DEFAULTS if tools is None else load_roles(tools)
        checks = choose(only)
    except (ValueError, OSError) as error:
        refuse(str(error), as_json=as_json)
    try:
        report = asyncio.run(run(checked, roles, checks, Pace(timeout=timeout), shows_bar=not as_json))
    except Trouble as trouble:
        refuse(f"{checked}: {trouble}", as_json=as_json)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        print_findings(report)
    raise typer.Exit(FAILED if report.has_failed else 0)


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


def read_headers(lines: list[str]) -> dict[str, str]:
    pairs = [line.partition(":") for line in lines]
    if not all(name.strip() and colon for name, colon, _ in pairs):
        # Not repeated: it may well be a secret.
        raise ValueError("a header is said as 'Name: value', and one has no name or no colon")
    return {name.strip(): value.strip() for name, _, value in pairs}


def choose(globs: list[str] | None) -> list[Check]:
    """The checks whose ids fit one of the globs."""
    chosen = [check for check in CHECKS if not globs or any(fnmatch.fnmatchcase(check.id, glob) for glob in globs)]
    if not chosen:
        raise ValueError(f"no check has an id like {', '.join(map(repr, globs or []))}")
    return chosen
