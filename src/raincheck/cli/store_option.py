"""The store that an operator's command is about: opened as it is, and never made or brought up to date."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from raincheck.address import MemoryAddress, SqliteAddress
from raincheck.cli import COULD_NOT_RUN
from raincheck.cli.endings import refuse
from raincheck.cli.tidying import run_tidily
from raincheck.clock import Clock, StoresClock
from raincheck.errors import ConfigurationError, RaincheckError, TaskError
from raincheck.opening import VARIABLE, find_address, is_there, open_twin
from raincheck.stores.interface import Store

NOT_DONE = 1
"""What a command ends with that found something bad, or left something undone."""

ACTOR = "operator"
"""Who it was, in a task's history."""

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help=f"The store, a URL or a path. Else {VARIABLE}, else the one in your state folder.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def run(ctx: typer.Context, work: Callable[[Clock], Awaitable[bool]]) -> NoReturn:
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
            f"there is no file {path.absolute()}: name the store that your server uses, by --store or {VARIABLE}"
        )
    return path
