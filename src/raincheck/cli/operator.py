"""Commands of the operator on a store: their options, how they run, and the store that they open.

The store is opened only if it exists, and is never created or migrated.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from raincheck.cli import COULD_NOT_RUN, FAILED
from raincheck.cli.exit_codes import fail, run_with_signals
from raincheck.cli.options import set_parameters
from raincheck.clock import Clock, StoreClock
from raincheck.errors import ConfigurationError, RaincheckError, TaskError
from raincheck.operations.select import StatusChoice
from raincheck.stores.base import Store
from raincheck.stores.factory import STORE_VARIABLE, open_existing_store, resolve_address, store_file_exists
from raincheck.stores.url import MemoryAddress, SqliteAddress

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
ReasonOption = Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, which is stored in the history.")]
ErrorsOption = Annotated[
    bool, typer.Option("--errors", help="Only tasks that failed, or whose result reports an error.")
]


def store_command(command: Callable[..., Coroutine[Any, Any, bool | None]]) -> Callable[..., NoReturn]:
    """Make a command of a function whose first parameter is `clock`: the clock of the store that it opens.

    The command exits with 0, or with 1 if the function returns False: a task was not processed. If the work can't be
    done at all, it exits with 2 and an error message. A test passes another clock as the object of the command's
    context.
    """

    @wraps(command)
    def run(ctx: typer.Context, **options: Any) -> NoReturn:  # noqa: ANN401 - of any option
        try:
            is_done = run_with_signals(command(ctx.obj or StoreClock(), **options))
        except RaincheckError as error:
            # The command did run if the error is about one of the named tasks.
            exit_code = FAILED if isinstance(error, TaskError) else COULD_NOT_RUN
            fail(str(error), as_json=bool(options.get("as_json")), exit_code=exit_code)
        raise typer.Exit(FAILED if is_done is False else 0)

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    set_parameters(run, [context, *list(inspect.signature(command).parameters.values())[1:]])
    return run


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
    if not isinstance(address, SqliteAddress):
        return None
    if not store_file_exists(address.path):
        raise ConfigurationError(
            f"there is no file {address.path.absolute()}: name the store that your server uses, with --store or "
            f"{STORE_VARIABLE}"
        )
    return address.path
