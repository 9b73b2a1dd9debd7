"""The book of calls that are under way: writing into it, finding one in it, and showing them all."""

import asyncio
from dataclasses import asdict, replace

import typer
from rich.table import Table

from raincheck.cli.exit_codes import Ending, Unusable
from raincheck.cli.output.results import make_console
from raincheck.client import Slip, TaskBook
from raincheck.errors import ConfigurationError
from raincheck.operations.describe import ID_SHOWN, json_of, printable
from raincheck.operations.redact import shown_server

MOST_NAMED = 5

OUR_LENGTH = 44
"""Of a whole id: as much as stays in one line."""


class Ledger(TaskBook):
    """A book that knows what it was told to keep, also if nobody waits for that any longer.

    What has ended stays in it until that has been told: what can't be printed can be fetched again.
    """

    _writing: "asyncio.Future[None] | None" = None
    _ended: Slip | None = None
    slip: Slip | None = None
    """The last slip, as soon as there is one: its task is there."""

    async def add(self, slip: Slip) -> None:
        self.slip = slip
        self._writing = asyncio.ensure_future(super().add(slip))
        await asyncio.shield(self._writing)

    async def remove(self, slip: Slip) -> None:
        self._ended = slip

    async def strike_off(self) -> None:
        """What has ended has been told of."""
        if self._ended is not None:
            await super().remove(self._ended)
            self._ended = None

    async def settle(self) -> str | None:
        """Wait until the slip is written. Why it could not be, if so."""
        if self._writing is not None:
            try:
                await asyncio.shield(self._writing)
            except ConfigurationError as error:
                return str(error)
        return None


def shown_slip(slip: Slip) -> Slip:
    """A slip as it may be printed: the book is for its owner alone, and what is printed may go anywhere."""
    return replace(slip, server=shown_server(slip.server))


async def find_slip(book: TaskBook, given: str) -> Slip:
    """The call whose task has this id, or one that begins so.

    Raises:
        Unusable: there is none, or there are several.
    """
    start = given.strip().removesuffix("...").removesuffix("…")
    slips = await book.slips()
    exact = [slip for slip in slips if slip.task_id in (given, start)]
    found = exact or [slip for slip in slips if start and slip.task_id.startswith(start)]
    if len(found) == 1:
        return found[0]
    if found:
        named = ", ".join(_told_apart([slip.task_id for slip in found])[:MOST_NAMED])
        raise Unusable(f"{len(found)} ids begin with {printable(given)!r} ({named}): write more of it")
    raise Unusable(
        f"no call {printable(given)!r} is in {book.path}: raincheck wait lists those that are, without those whose end "
        f"was told, or which were cancelled"
    )


async def show_book(book: TaskBook, *, as_json: bool) -> Ending:
    """List the calls that are under way, oldest first."""
    slips = [shown_slip(slip) for slip in await book.slips()]
    if as_json:
        typer.echo(json_of([asdict(slip) for slip in slips]))
        return Ending.DONE
    console = make_console()
    if not slips:
        console.print("no calls are under way", highlight=False)
        return Ending.DONE
    table = Table(box=None, pad_edge=False, header_style="bold")
    ids = _told_apart([slip.task_id for slip in slips])
    table.add_column("task", no_wrap=max(map(len, ids)) <= OUR_LENGTH, overflow="fold")
    table.add_column("tool", no_wrap=True)
    table.add_column("since", no_wrap=True)
    table.add_column("server", overflow="fold")
    for name, slip in zip(ids, slips, strict=True):
        table.add_row(name, printable(slip.tool), printable(slip.taken_at), printable(slip.server))
    console.print(table)
    return Ending.DONE


def _told_apart(ids: list[str]) -> list[str]:
    """As much of each id as finds it among the others."""
    longest = max(map(len, ids))
    kinds = len(set(ids))
    length = next((one for one in range(ID_SHOWN, longest) if len({name[:one] for name in ids}) == kinds), longest)
    return [printable(name[:length]) for name in ids]
