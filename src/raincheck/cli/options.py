"""Options that several commands share, and how commands run with them.

This covers the options of commands that talk to a server, HTTP headers on the command line, the file of saved calls,
and the store of an operator's command. That store is opened only if it exists, and is never created or migrated.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from platformdirs import user_state_path

from raincheck.cli import COULD_NOT_RUN
from raincheck.cli.exit_codes import ExitCode, UsageError, fail, run_with_signals
from raincheck.clock import Clock, StoreClock
from raincheck.errors import ConfigurationError, RaincheckError, TaskError
from raincheck.operations.select import StatusChoice
from raincheck.stores.base import Store
from raincheck.stores.factory import STORE_VARIABLE, open_existing_store, resolve_address, store_file_exists
from raincheck.stores.url import MemoryAddress, SqliteAddress

DEFAULT_CONNECT_TIMEOUT = 30.0
"""Seconds for a server to start and complete the handshake."""

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
NamespaceOption = Annotated[str | None, typer.Option(metavar="NAME", help="Only tasks of this server.")]
OwnerOption = Annotated[
    str | None, typer.Option(metavar="OWNER", help="Only tasks of owners with this name, or of this kind.")
]
ToolOption = Annotated[str | None, typer.Option(metavar="TOOL", help="Only tasks of this tool.")]
StateOption = Annotated[str | None, typer.Option(metavar="STATE", help="Only workflow instances in this state.")]
SubjectOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Only tasks of workflows with this subject.")]
StatusOption = Annotated[
    list[StatusChoice] | None,
    typer.Option(metavar="STATUS", help=f"Only tasks with this status: {', '.join(StatusChoice)}. Repeatable."),
]
ErrorsOption = Annotated[
    bool, typer.Option("--errors", help="Only tasks that failed, or whose result reports an error.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The connection options of a command."""

    headers: list[str] | None
    calls_path: Path | None
    connect_timeout: float
    """Seconds for the server to complete the handshake."""
    is_verbose: bool
    as_json: bool
    timeout: float | None = None
    server: str | None = None
    """The server's address for a saved call, if the saved address is incomplete."""


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
        ValueError: a header has another form.
    """
    pairs = [line.partition(":") for line in lines]
    if not all(name.strip() and colon for name, colon, _ in pairs):
        # The error does not repeat the header, which may be a secret.
        raise ValueError("a header has no name or no colon: write it as 'Name: value'")
    return {name.strip(): value.strip() for name, _, value in pairs}


CALLS_VARIABLE = "RAINCHECK_CALLS"

CallsOption = Annotated[
    Path | None,
    typer.Option(
        "--calls",
        metavar="PATH",
        help=f"The file of saved calls. Else {CALLS_VARIABLE}, else a file in your state folder.",
    ),
]


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


EXIT_FAILED = 1
"""The exit code of a command that found a problem, or did not process every task."""

ACTOR = "operator"
"""The actor of the operator's changes in a task's history."""

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help=f"The store, as a URL or a path. Else {STORE_VARIABLE}, else the store in your state folder.",
    ),
]


def run_on_store(ctx: typer.Context, work: Callable[[Clock], Awaitable[bool]]) -> NoReturn:
    """Run a command's coroutine. Exits with 0, or with 1 if it returns False: a task was not processed.

    If the work can't be done at all, it exits with 2 and an error message. The coroutine receives the clock of the
    store that it opens. A test passes another clock as the object of the command's context.
    """
    clock: Clock = ctx.obj or StoreClock()

    async def main() -> bool:
        return await work(clock)

    try:
        is_done = run_with_signals(main())
    except RaincheckError as error:
        # The command did run if the error is about one of the named tasks.
        exit_code = EXIT_FAILED if isinstance(error, TaskError) else COULD_NOT_RUN
        fail(str(error), as_json=bool(ctx.params.get("as_json")), exit_code=exit_code)
    raise typer.Exit(0 if is_done else EXIT_FAILED)


@asynccontextmanager
async def open_operator_store(url: str | None, clock: Clock) -> AsyncGenerator[Store]:
    """Open the existing store at this URL, and close it at the end. `clock` then follows that store.

    Raises:
        ConfigurationError, StoreError: the store does not exist, or can't be used. It was left unchanged.
    """
    await asyncio.to_thread(find_store_file, url)
    async with open_existing_store(url) as store:
        if isinstance(clock, StoreClock):
            clock.use(store.capabilities.clock)
        yield store


def find_store_file(url: str | None) -> Path | None:
    """Return the file of an existing store; None if the store is not in a file.

    Raises:
        ConfigurationError: the store does not exist.
    """
    address = resolve_address(url)
    if isinstance(address, MemoryAddress):
        raise ConfigurationError(
            "a store in memory is visible only to the process that created it: name a store in a file"
        )
    return _require_file(address.path) if isinstance(address, SqliteAddress) else None


def _require_file(path: Path) -> Path:
    if not store_file_exists(path):
        raise ConfigurationError(
            f"there is no file {path.absolute()}: name the store that your server uses, with --store or "
            f"{STORE_VARIABLE}"
        )
    return path
