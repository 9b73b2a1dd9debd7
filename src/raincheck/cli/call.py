"""`raincheck call`: call a tool of any server, however long it takes."""

from typing import Annotated

import typer

from raincheck.cli.book_option import BookOption
from raincheck.cli.endings import CODES, Unusable, refuse
from raincheck.cli.wishes import (
    PATIENCE,
    ConnectOption,
    HeaderOption,
    JsonOption,
    TimeoutOption,
    VerboseOption,
    Wishes,
    run,
)

# What follows a line with a backspace alone is printed as it stands.
EPILOG = f"""
SERVER is a URL, the command that starts it (in quotes), or unix:PATH. Without a TOOL, its tools are listed.

Examples:

\b
  raincheck call http://127.0.0.1:8000/mcp
  raincheck call "raincheck serve server.py" build_report year=2026 months=3
  raincheck call unix:reports.sock build_report @arguments.json --detach
  raincheck call URL search 'tags:=["a", "b"]' --header 'Authorization: Bearer …' --json

Arguments are name=value, read as the tool's schema says; name:=JSON; @file.json or - (stdin) for an object with all of
them. On a terminal, what the task asks is asked there, and Ctrl-C offers to detach or to cancel.
{CODES}"""


def call(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="A URL, a command in quotes, or unix:PATH.")],
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="Which tool to call.")] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="What to call it with.")
    ] = None,
    lists: Annotated[bool, typer.Option("--list", help="List the tools with their arguments.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Don't wait for a task: say how to come back.")] = False,
    timeout: TimeoutOption = None,
    header: HeaderOption = None,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="KEY", help="Begin it once, however often it is called with this."),
    ] = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Send the arguments though they don't fit the tool's schema.")
    ] = False,
    book: BookOption = None,
    connect_timeout: ConnectOption = PATIENCE,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Call a tool, and wait for its result.

    However long it takes, and through what it asks.
    """
    from raincheck.cli.unquoted import check_quotes

    try:
        check_quotes(server, tool, arguments or [])
    except Unusable as error:
        refuse(str(error), as_json=as_json)
    # The SDK takes most of a second to import. Other commands do without it.
    from raincheck.cli.calling import call_tool, show_tools

    wishes = Wishes(
        headers=header,
        named_book=book,
        within=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        timeout=timeout,
    )
    if tool is None or lists:
        run(show_tools(server, wishes), as_json=as_json)
    run(
        call_tool(server, tool, arguments or [], wishes, detaches=detach, key=key, checks=not no_check),
        as_json=as_json,
    )
