"""`raincheck conformance`: whether a server does what the protocol says."""

import json
from pathlib import Path
from typing import Annotated

import typer

from raincheck.cli.endings import refuse
from raincheck.cli.tidying import run_tidily

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
    ] = ANSWERED_WITHIN,
) -> None:
    """Check a server of the tasks of MCP 2025-11-25 ("G1"), over Streamable HTTP or stdio."""
    # The suite and what it talks with take as long to import as all the rest. Other commands do without it.
    from raincheck.cli.checking import choose, make_target, run
    from raincheck.cli.findings import print_findings
    from raincheck.testing.g1.caller import Pace
    from raincheck.testing.g1.roles import DEFAULTS, load_roles
    from raincheck.testing.g1.verdicts import Trouble

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
