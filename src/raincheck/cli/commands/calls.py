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
The id is that of a call which `raincheck call` left under way; its beginning is enough. A server that is a command is
started again, where it was started then, with the environment as it is now. A header is not kept, nor a
password or a token in a URL: give them again, by --header and --server. What looks secret in a command is kept, in a
file that you alone can read, and not shown.
"""

# Text after a line that contains only \b is not rewrapped.
WAIT = f"""
Examples:

\b
  raincheck wait
  raincheck wait 01a1e261d7ab
  raincheck wait 01a1e261d7ab --timeout 60 --json

Without an id, the calls that are under way are listed.
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
It ends with 0 if the task is cancelled, or asked to stop; with 1 if it had ended before, or
its workflow does not allow it; and with 2 if it could not be tried, or is not in the book. One that is cancelled is
struck off that, so a second time ends with 2.
"""

ANSWER = f"""
Examples:

\b
  raincheck answer 01a1e261d7ab ok=true note='looks good'
  raincheck answer 01a1e261d7ab --decline
  raincheck answer 01a1e261d7ab --key 7f3a size=large

Answers are written as the arguments of `raincheck call`, and checked by the form that the task asks with.
{IDS}
It ends with 0 if it is answered; with 1 if the server refuses the answer; and with 2 if it could not be tried, or the
task asks nothing.
"""

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The task's id, or its beginning.")]


def wait(
    task_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The task's id, or its beginning.")] = None,
    timeout: TimeoutOption = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove it from the saved calls, and leave the task alone.")
    ] = False,
    server: ServerOption = None,
    header: HeaderOption = None,
    calls: CallsOption = None,
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Wait for a call that is under way, or list them."""
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
    wishes = ConnectionOptions(
        headers=header,
        calls_path=calls,
        connect_timeout=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        timeout=timeout,
        server=server,
    )
    run_call(wait_for_task(task_id, wishes), as_json=as_json)


def get(
    task_id: IdArgument,
    server: ServerOption = None,
    header: HeaderOption = None,
    calls: CallsOption = None,
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show how a call is now, or its result.

    It stays in the saved calls, even if it has ended.
    """
    from raincheck.cli.remote.session import print_status

    wishes = ConnectionOptions(
        headers=header,
        calls_path=calls,
        connect_timeout=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        server=server,
    )
    run_call(print_status(task_id, wishes), as_json=as_json)


def cancel(
    task_id: IdArgument,
    server: ServerOption = None,
    header: HeaderOption = None,
    calls: CallsOption = None,
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stop a call that is under way."""
    from raincheck.cli.remote.session import cancel_task

    wishes = ConnectionOptions(
        headers=header,
        calls_path=calls,
        connect_timeout=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        server=server,
    )
    run_call(cancel_task(task_id, wishes), as_json=as_json)


def answer(
    task_id: IdArgument,
    values: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="The answer.")] = None,
    decline: Annotated[bool, typer.Option("--decline", help="Say no.")] = False,
    dismiss: Annotated[bool, typer.Option("--dismiss", help="Say neither yes nor no.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Which question, if there are several.")
    ] = None,
    server: ServerOption = None,
    header: HeaderOption = None,
    calls: CallsOption = None,
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Answer what a call that is under way asks."""
    from raincheck.cli.remote.session import answer_task

    if decline + dismiss + bool(values) > 1:
        fail("one of --decline, --dismiss and an answer", as_json=as_json)
    action = "decline" if decline else "cancel" if dismiss else "accept"
    wishes = ConnectionOptions(
        headers=header,
        calls_path=calls,
        connect_timeout=connect_timeout,
        is_verbose=verbose,
        as_json=as_json,
        server=server,
    )
    run_call(answer_task(task_id, values or [], action, key, wishes), as_json=as_json)
