"""`raincheck call`: call a tool of any server, however long it takes.

Missing quotes around a server's command are detected, as in `raincheck call python server.py TOOL a=1`.
"""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from raincheck.cli.exit_codes import EXIT_CODES_HELP, UsageError, fail
from raincheck.cli.options import (
    DEFAULT_CONNECT_TIMEOUT,
    CallsOption,
    ConnectionOptions,
    ConnectTimeoutOption,
    HeaderOption,
    JsonOption,
    TimeoutOption,
    VerboseOption,
    run_call,
)
from raincheck.cli.prompts.arguments import ARGUMENT_PATTERN, STDIN
from raincheck.operations.redact import redact_command

# Text after a line that contains only \b is not rewrapped.
EPILOG = f"""
SERVER is a URL, the command that starts it (in quotes), or unix:PATH. Without a TOOL, its tools are listed.

Examples:

\b
  raincheck call http://127.0.0.1:8000/mcp
  raincheck call "raincheck serve server.py" build_report year=2026 months=3
  raincheck call unix:reports.sock build_report @arguments.json --detach
  raincheck call URL search 'tags:=["a", "b"]' --header 'Authorization: Bearer …' --json

Arguments are name=value, parsed by the tool's schema; name:=JSON; @file.json or - (stdin) for an object with all of
them. On a terminal, the command asks the questions of the task, and Ctrl-C offers to detach or to cancel.
{EXIT_CODES_HELP}"""


def call(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="A URL, a command in quotes, or unix:PATH.")],
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="The tool to call.")] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="The arguments of the tool.")
    ] = None,
    lists: Annotated[bool, typer.Option("--list", help="List the tools with their arguments.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Don't wait for a task: print how to resume it.")] = False,
    timeout: TimeoutOption = None,
    header: HeaderOption = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key", metavar="KEY", help="Start the call only once, however often it is sent with this key."
        ),
    ] = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Send the arguments without checking them against the tool's schema.")
    ] = False,
    calls: CallsOption = None,
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Call a tool, and wait for its result.

    The call may take any time, and may ask questions.
    """
    try:
        check_quotes(server, tool, arguments or [])
    except UsageError as error:
        fail(str(error), as_json=as_json)
    # Imported here: the SDK takes most of a second to import, and other commands don't need it.
    from raincheck.cli.remote.session import call_tool, show_tools

    options = ConnectionOptions(
        headers=header,
        calls_path=calls,
        connect_timeout=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        timeout=timeout,
    )
    if tool is None or lists:
        run_call(show_tools(server, options), as_json=as_json)
    run_call(
        call_tool(server, tool, arguments or [], options, detach=detach, idempotency_key=key, validate=not no_check),
        as_json=as_json,
    )


ADDRESS = re.compile(r"https?://|unix:|\S+:\d+")

FILES = (".py", ".js", ".mjs", ".cjs", ".ts", ".jar", ".sh")


def check_quotes(server: str, tool: str | None, arguments: Sequence[str]) -> None:
    """Reject words that can only belong to the command of a server that was given as one word.

    Raises:
        UsageError: there are such words. The error suggests what to write.
    """
    if tool is None or ADDRESS.match(server) or len(server.split()) != 1:
        return
    words = [server, tool, *arguments]
    first = next((number for number in range(2, len(words)) if _is_argument(words[number])), len(words))
    if first == 2 and not _is_file(tool):
        return
    # The last word before the arguments is the tool, unless it can't be one.
    end = first if _is_file(words[first - 1]) else first - 1
    command = shlex.quote(redact_command(words[:end]).text)
    rest = " ".join(shlex.quote(word) for word in redact_command(words[end:]).words)
    stray = redact_command([tool if _is_file(tool) else words[2]]).text
    reason = "is a file, not a tool" if _is_file(tool) else "is not an argument of the form name=value"
    raise UsageError(
        f"{stray!r} {reason}: if it belongs to the command of the server, put the whole command in quotes, as in "
        f"{' '.join(filter(None, ['raincheck call', command, rest]))}"
    )


def _is_argument(word: str) -> bool:
    return word == STDIN or word.startswith("@") or ARGUMENT_PATTERN.fullmatch(word) is not None


def _is_file(word: str) -> bool:
    # A tool may have the same name as a file, unless the name looks like a path.
    looks_like_path = os.sep in word or Path(word).suffix != ""
    return word.endswith(FILES) or (looks_like_path and Path(word).is_file())
