"""The store that an operator's command is about: opened as it is, and never made or brought up to date.

What the commands that talk to a server can be told, and how they are run.

Where the book of calls that are under way is.

HTTP headers as they are written in a shell.
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
from raincheck.cli.exit_codes import Ending, Unusable, refuse, run_tidily
from raincheck.clock import Clock, StoresClock
from raincheck.errors import ConfigurationError, RaincheckError, TaskError
from raincheck.stores.base import Store
from raincheck.stores.factory import STORE_VARIABLE, find_address, is_there, open_twin
from raincheck.stores.url import MemoryAddress, SqliteAddress

PATIENCE = 30.0
"""Seconds for a server to start and to greet us."""

HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", metavar="HEADER", help="A header to send, 'Name: value'. Repeatable.")
]
TimeoutOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0, help="How long to wait. A task goes on after that.")
]
ConnectOption = Annotated[
    float, typer.Option("--connect-timeout", metavar="SECONDS", min=0.1, help="How long the server may take to greet.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show what a server that is a command says on stderr, as it says it.")
]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The server's URL again, where it has a password or a token in it."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a command was told, beside what it is about."""

    headers: list[str] | None
    named_book: Path | None
    within: float
    """Seconds for the server to greet us."""
    is_verbose: bool
    as_json: bool
    timeout: float | None = None
    server: str | None = None
    """The address of a call that is under way, where the book does not have all of it."""


def run_call(work: Coroutine[Any, Any, Ending], *, as_json: bool) -> NoReturn:
    """Do it, and end as it says."""
    try:
        ending = run_tidily(work)
    except RaincheckError as error:
        refuse(str(error), as_json=as_json)
    raise typer.Exit(ending)


def read_headers(lines: list[str]) -> dict[str, str]:
    """Headers of the form `Name: value`, by their names.

    Raises:
        ValueError: one is not of that form.
    """
    pairs = [line.partition(":") for line in lines]
    if not all(name.strip() and colon for name, colon, _ in pairs):
        # Not repeated: it may well be a secret.
        raise ValueError("a header is said as 'Name: value', and one has no name or no colon")
    return {name.strip(): value.strip() for name, _, value in pairs}


CALLS_VARIABLE = "RAINCHECK_BOOK"

BookOption = Annotated[
    Path | None,
    typer.Option(
        "--book",
        metavar="PATH",
        help=f"The file with the calls under way. Else {CALLS_VARIABLE}, else one in your state folder.",
    ),
]


def book_path(named: Path | None) -> Path:
    """The file of that name, or the usual one.

    Raises:
        Unusable: there can't be one.
    """
    found = named or (Path(os.environ[CALLS_VARIABLE]) if os.environ.get(CALLS_VARIABLE) else None)
    if found is not None:
        found = found.expanduser().absolute()
        if not found.parent.is_dir():
            raise Unusable(f"there is no folder {found.parent} for the book {found.name}: make it first")
        return found
    folder = user_state_path("raincheck", appauthor=False)
    try:
        # For this user alone: the addresses of servers may tell more than others should know.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(
            f"the folder {folder} for the book can't be made ({error.strerror}): name one by {CALLS_VARIABLE}"
        ) from error
    return folder / "calls.book"


NOT_DONE = 1
"""What a command ends with that found something bad, or left something undone."""

ACTOR = "operator"
"""Who it was, in a task's history."""

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help=f"The store, a URL or a path. Else {STORE_VARIABLE}, else the one in your state folder.",
    ),
]


def run_on_store(ctx: typer.Context, work: Callable[[Clock], Awaitable[bool]]) -> NoReturn:
    """Do the work of a command, and end with 0, or 1 if the work says that something was not done.

    If the work can't be done at all, it ends with 2 and says why. It is given the clock of the store that it opens.
    Whoever tests a command gives another, as the object of its context.
    """
    clock: Clock = ctx.obj or StoresClock()

    async def main() -> bool:
        return await work(clock)

    try:
        is_done = run_tidily(main())
    except RaincheckError as error:
        # What is wrong with a task that was named is no reason why the command can't be run.
        ending = NOT_DONE if isinstance(error, TaskError) else COULD_NOT_RUN
        refuse(str(error), as_json=bool(ctx.params.get("as_json")), ending=ending)
    raise typer.Exit(0 if is_done else NOT_DONE)


@asynccontextmanager
async def open_existing(name: str | None, clock: Clock) -> AsyncGenerator[Store]:
    """Open the store of this name, which must be there, and close it at the end. The clock is then that of the store.

    Raises:
        ConfigurationError, StoreError: there is none, or it can't be used. Whatever is there was left as it was.
    """
    await asyncio.to_thread(find_existing, name)
    async with open_twin(name) as store:
        if isinstance(clock, StoresClock):
            clock.follow(store.capabilities.clock)
        yield store


def find_existing(name: str | None) -> Path | None:
    """The file of a store that is there; None if it is not in a file.

    Raises:
        ConfigurationError: there is nothing of that name.
    """
    address = find_address(name)
    if isinstance(address, MemoryAddress):
        raise ConfigurationError(
            "what is kept in memory: can be seen by the process alone that keeps it: name a store in a file"
        )
    return _existing_file(address.path) if isinstance(address, SqliteAddress) else None


def _existing_file(path: Path) -> Path:
    if not is_there(path):
        raise ConfigurationError(
            f"there is no file {path.absolute()}: name the store that your server uses, by --store or {STORE_VARIABLE}"
        )
    return path
