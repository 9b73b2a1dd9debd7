"""Options of the commands that talk to a server, HTTP headers on the command line, and the file of saved calls."""

import inspect
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from platformdirs import user_state_path

from raincheck.cli.exit_codes import ExitCode, UsageError, fail, run_with_signals
from raincheck.errors import RaincheckError

DEFAULT_CONNECT_TIMEOUT = 30.0
"""Seconds for a server to start and complete the handshake."""

DEFAULT_MAX_RESPONSE_BYTES = 64 * 2**20
"""The same as of `TaskClient`, whose import takes too long for a command that does not call."""

CALLS_VARIABLE = "RAINCHECK_CALLS"

HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="HEADER", help="An HTTP header to send, as 'Name: value'. Repeatable."),
]
TimeoutOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0, help="How long to wait. A task keeps running after that.")
]
ConnectTimeoutOption = Annotated[
    float,
    typer.Option("--connect-timeout", metavar="SECONDS", min=0.1, help="How long to wait for the server to connect."),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show the stderr of a server that is a command, as it is written.")
]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The server's full URL, if it contains a password or a token."),
]
CallsOption = Annotated[
    Path | None,
    typer.Option(
        "--calls",
        metavar="PATH",
        help=f"The file of saved calls. Else {CALLS_VARIABLE}, else a file in your state folder.",
    ),
]
MaxResponseOption = Annotated[
    int,
    typer.Option(
        "--max-response-bytes",
        metavar="BYTES",
        min=1,
        help="The largest response to read, from a URL or a Unix socket. By default 64 MiB.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The connection options of a command."""

    server: ServerOption = None
    """The server's address for a saved call, if the saved address is incomplete."""
    headers: HeaderOption = None
    calls_path: CallsOption = None
    connect_timeout: ConnectTimeoutOption = DEFAULT_CONNECT_TIMEOUT
    max_response_bytes: MaxResponseOption = DEFAULT_MAX_RESPONSE_BYTES
    is_verbose: VerboseOption = False
    as_json: JsonOption = False


def with_connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the last parameter of a command, `options`, by an option for each field of `ConnectionOptions`."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    added = [
        inspect.Parameter(field.name, kind, default=field.default, annotation=field.type)
        for field in fields(ConnectionOptions)
    ]

    @wraps(command)
    def run(**values: Any) -> None:  # noqa: ANN401 - of any option
        options = ConnectionOptions(**{parameter.name: values.pop(parameter.name) for parameter in added})
        command(**values, options=options)

    set_parameters(run, [*list(inspect.signature(command).parameters.values())[:-1], *added])
    return run


def set_parameters(function: Any, parameters: list[inspect.Parameter]) -> None:  # noqa: ANN401 - a function, with its attributes
    """Set the parameters that typer reads from a function: its signature, and its annotations."""
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def run_call(work: Coroutine[Any, Any, ExitCode], *, as_json: bool) -> NoReturn:
    """Run a call's coroutine, and exit with the code that it returns."""
    try:
        exit_code = run_with_signals(work)
    except RaincheckError as error:
        fail(str(error), as_json=as_json)
    raise typer.Exit(exit_code)


def parse_headers(lines: list[str]) -> dict[str, str]:
    """Parse headers of the form `Name: value`.

    Raises:
        UsageError: a header has another form.
    """
    pairs = [line.partition(":") for line in lines]
    if not all(name.strip() and colon for name, colon, _ in pairs):
        # The error does not repeat the header, which may be a secret.
        raise UsageError("a header has no name or no colon: write it as 'Name: value'")
    return {name.strip(): value.strip() for name, _, value in pairs}


def calls_path(path: Path | None) -> Path:
    """Return this path, or the default file of saved calls.

    Raises:
        UsageError: the folder does not exist, or can't be created.
    """
    path = path or (Path(os.environ[CALLS_VARIABLE]) if os.environ.get(CALLS_VARIABLE) else None)
    if path is not None:
        path = path.expanduser().absolute()
        if not path.parent.is_dir():
            raise UsageError(
                f"there is no folder {path.parent} for the file of saved calls {path.name}: create it first"
            )
        return path
    folder = user_state_path("raincheck", appauthor=False)
    try:
        # Readable only for this user: server addresses may be confidential.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"can't create the folder {folder} for the file of saved calls ({error.strerror}): "
            f"name another file with {CALLS_VARIABLE}"
        ) from error
    return folder / "calls.book"
