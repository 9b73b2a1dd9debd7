"""`raincheck wait`, `get`, `cancel` and `answer`: continue with a saved call."""

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
    ServerOption,
    TimeoutOption,
    VerboseOption,
    calls_path,
    run_call,
)

IDS = """
The id is that of a saved call, which `raincheck call` detached from; a prefix of it is enough. If the server is a
command, it is started again in the same folder, with the current environment. Headers are not saved, and neither are
passwords and tokens in a URL: pass them again, with --header and --server. Secrets in a command are saved, in a file
that only you can read, and are not shown.
"""

# Text after a line that contains only \b is not rewrapped.
WAIT = f"""
Examples:

\b
  raincheck wait
  raincheck wait 01a1e261d7ab
  raincheck wait 01a1e261d7ab --timeout 60 --json

Without an id, the saved calls are listed.
{IDS}{EXIT_CODES_HELP}"""

GET = f"""
Examples:

\b
  raincheck get 01a1e261d7ab
{IDS}{EXIT_CODES_HELP}"""

CANCEL = f"""
Examples:

\b
  raincheck cancel 01a1e261d7ab
{IDS}
Exit codes: 0 the task was cancelled, or asked to stop; 1 it had already ended, or its workflow does not allow the
cancel; 2 usage or connection error, or the call is not saved. A cancelled call is removed from the saved calls, so
cancelling it again ends with 2.
"""

ANSWER = f"""
Examples:

\b
  raincheck answer 01a1e261d7ab ok=true note='looks good'
  raincheck answer 01a1e261d7ab --decline
  raincheck answer 01a1e261d7ab --key 7f3a size=large

Answers are written like the arguments of `raincheck call`, and checked against the form of the question.
{IDS}
Exit codes: 0 success; 1 the server refused the answer; 2 usage or connection error, or the task has no open question.
"""

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The task's id, or a prefix of it.")]


def wait(
    task_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The task's id, or a prefix of it.")] = None,
    timeout: TimeoutOption = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove the call from the saved calls, without cancelling the task.")
    ] = False,
    server: ServerOption = None,
    header: HeaderOption = None,
    calls: CallsOption = None,
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Wait for the result of a saved call, or list the saved calls."""
    from raincheck.cli.remote.saved_calls import print_saved_calls
    from raincheck.cli.remote.session import forget_task, wait_for_task
    from raincheck.client import SavedCalls

    try:
        path = calls_path(calls)
    except UsageError as error:
        fail(str(error), as_json=as_json)
    if task_id is None:
        run_call(print_saved_calls(SavedCalls(path), as_json=as_json), as_json=as_json)
    if forget:
        run_call(forget_task(SavedCalls(path), task_id, as_json=as_json), as_json=as_json)
    options = ConnectionOptions(
        headers=header,
        calls_path=calls,
        connect_timeout=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        timeout=timeout,
        server=server,
    )
    run_call(wait_for_task(task_id, options), as_json=as_json)


def get(
    task_id: IdArgument,
    server: ServerOption = None,
    header: HeaderOption = None,
    calls: CallsOption = None,
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the status of a saved call, or its result.

    The call stays in the saved calls, even if it has ended.
    """
    from raincheck.cli.remote.session import print_status

    options = ConnectionOptions(
        headers=header,
        calls_path=calls,
        connect_timeout=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        server=server,
    )
    run_call(print_status(task_id, options), as_json=as_json)


def cancel(
    task_id: IdArgument,
    server: ServerOption = None,
    header: HeaderOption = None,
    calls: CallsOption = None,
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Cancel a saved call."""
    from raincheck.cli.remote.session import cancel_task

    options = ConnectionOptions(
        headers=header,
        calls_path=calls,
        connect_timeout=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        server=server,
    )
    run_call(cancel_task(task_id, options), as_json=as_json)


def answer(
    task_id: IdArgument,
    values: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="The answer.")] = None,
    decline: Annotated[bool, typer.Option("--decline", help="Decline to answer.")] = False,
    dismiss: Annotated[bool, typer.Option("--dismiss", help="Dismiss the question without an answer.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The key of the question, if there are several.")
    ] = None,
    server: ServerOption = None,
    header: HeaderOption = None,
    calls: CallsOption = None,
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Answer a question of a saved call."""
    from raincheck.cli.remote.session import answer_task

    if decline + dismiss + bool(values) > 1:
        fail("--decline, --dismiss and an answer exclude each other: give one of them", as_json=as_json)
    action = "decline" if decline else "cancel" if dismiss else "accept"
    options = ConnectionOptions(
        headers=header,
        calls_path=calls,
        connect_timeout=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        server=server,
    )
    run_call(answer_task(task_id, values or [], action, key, options), as_json=as_json)
