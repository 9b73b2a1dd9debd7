"""`raincheck call`, `wait`, `get`, `cancel` and `answer`: call a tool of any server, and continue with a saved call.

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
    DEFAULT_MAX_RESPONSE_BYTES,
    CallsOption,
    ConnectionOptions,
    ConnectTimeoutOption,
    HeaderOption,
    JsonOption,
    MaxResponseOption,
    TimeoutOption,
    VerboseOption,
    run_call,
    with_connection_options,
)
from raincheck.cli.prompts.arguments import ARGUMENT_PATTERN, STDIN
from raincheck.operations.describe import RedactedCommand

CALL_EPILOG = f"""
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

IDS = """
The id is that of a saved call, which `raincheck call` detached from; a prefix of it is enough. If the server is a
command, it is started again in the same folder, with the current environment. Headers are not saved, and neither are
passwords and tokens in a URL: pass them again, with --header and --server. Secrets in a command are saved, in a file
that only you can read, and are not shown.
"""

WAIT_EPILOG = f"""
Examples:

\b
  raincheck wait
  raincheck wait 01a1e261d7ab
  raincheck wait 01a1e261d7ab --timeout 60 --json

Without an id, the saved calls are listed.
{IDS}{EXIT_CODES_HELP}"""

GET_EPILOG = f"""
Examples:

\b
  raincheck get 01a1e261d7ab
{IDS}{EXIT_CODES_HELP}"""

CANCEL_EPILOG = f"""
Examples:

\b
  raincheck cancel 01a1e261d7ab
{IDS}
Exit codes: 0 the task was cancelled, or asked to stop; 1 it had already ended, or its workflow does not allow the
cancel; 2 usage or connection error, or the call is not saved. A cancelled call is removed from the saved calls, so
cancelling it again ends with 2.
"""

ANSWER_EPILOG = f"""
Examples:

\b
  raincheck answer 01a1e261d7ab ok=true note='looks good'
  raincheck answer 01a1e261d7ab --decline
  raincheck answer 01a1e261d7ab --key 7f3a size=large

Answers are written like the arguments of `raincheck call`, and checked against the form of the question.
{IDS}
Exit codes: 0 success; 1 the server refused the answer; 2 usage or connection error, or the task has no open question.
"""


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
    max_response_bytes: MaxResponseOption = DEFAULT_MAX_RESPONSE_BYTES,
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
        max_response_bytes=max_response_bytes,
        is_verbose=verbose,
        as_json=as_json,
    )
    if tool is None or lists:
        run_call(show_tools(server, options), as_json=as_json)
    calling = call_tool(
        server,
        tool,
        arguments or [],
        options,
        timeout=timeout,
        detach=detach,
        idempotency_key=key,
        validate=not no_check,
    )
    run_call(calling, as_json=as_json)


IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The task's id, or a prefix of it.")]


@with_connection_options
def wait(
    task_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The task's id, or a prefix of it.")] = None,
    timeout: TimeoutOption = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove the call from the saved calls, without cancelling the task.")
    ] = False,
    *,
    options: ConnectionOptions,
) -> None:
    """Wait for the result of a saved call, or list the saved calls."""
    from raincheck.cli.remote.saved_calls import forget_task, print_saved_calls
    from raincheck.cli.remote.session import wait_for_task

    if task_id is None:
        waiting = print_saved_calls(options)
    elif forget:
        waiting = forget_task(task_id, options)
    else:
        waiting = wait_for_task(task_id, options, timeout)
    run_call(waiting, as_json=options.as_json)


@with_connection_options
def get(task_id: IdArgument, options: ConnectionOptions) -> None:
    """Show the status of a saved call, or its result.

    The call stays in the saved calls, even if it has ended.
    """
    from raincheck.cli.remote.session import print_status

    run_call(print_status(task_id, options), as_json=options.as_json)


@with_connection_options
def cancel(task_id: IdArgument, options: ConnectionOptions) -> None:
    """Cancel a saved call."""
    from raincheck.cli.remote.session import cancel_task

    run_call(cancel_task(task_id, options), as_json=options.as_json)


@with_connection_options
def answer(
    task_id: IdArgument,
    values: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="The answer.")] = None,
    decline: Annotated[bool, typer.Option("--decline", help="Decline to answer.")] = False,
    dismiss: Annotated[bool, typer.Option("--dismiss", help="Dismiss the question without an answer.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The key of the question, if there are several.")
    ] = None,
    *,
    options: ConnectionOptions,
) -> None:
    """Answer a question of a saved call."""
    from raincheck.cli.remote.session import answer_task

    if decline + dismiss + bool(values) > 1:
        fail("--decline, --dismiss and an answer exclude each other: give one of them", as_json=options.as_json)
    action = "decline" if decline else "cancel" if dismiss else "accept"
    run_call(answer_task(task_id, values or [], action, key, options), as_json=options.as_json)


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
    command = shlex.quote(RedactedCommand(words[:end]).text)
    rest = " ".join(shlex.quote(word) for word in RedactedCommand(words[end:]).words)
    stray = RedactedCommand([tool if _is_file(tool) else words[2]]).text
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
