"""The book of calls that are under way: finding one in it, and showing them all."""

import json
from dataclasses import asdict

import typer
from rich.table import Table

from raincheck.cli.endings import Ending, Unusable
from raincheck.cli.telling import make_console, printable, told_id
from raincheck.client import Slip, TaskBook

MOST_NAMED = 5


async def find_slip(book: TaskBook, given: str) -> Slip:
    """The call whose task has this id, or one that begins so.

    Raises:
        Unusable: there is none, or there are several.
    """
    start = given.strip().removesuffix("...").removesuffix("…")
    slips = await book.slips()
    exact = [slip for slip in slips if slip.task_id == start]
    found = exact or [slip for slip in slips if start and slip.task_id.startswith(start)]
    if len(found) == 1:
        return found[0]
    if found:
        named = ", ".join(told_id(slip.task_id) for slip in found[:MOST_NAMED])
        raise Unusable(f"{len(found)} ids begin with {printable(given)!r} ({named}): write more of it")
    raise Unusable(f"no call {printable(given)!r} is in {book.path}: raincheck wait lists those that are")


async def show_book(book: TaskBook, *, as_json: bool) -> Ending:
    """List the calls that are under way, oldest first."""
    slips = await book.slips()
    if as_json:
        typer.echo(json.dumps([asdict(slip) for slip in slips], indent=2, ensure_ascii=False))
        return Ending.DONE
    console = make_console()
    if not slips:
        console.print("no calls are under way", highlight=False)
        return Ending.DONE
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task", no_wrap=True)
    table.add_column("tool", no_wrap=True)
    table.add_column("since", no_wrap=True)
    table.add_column("server", overflow="fold")
    for slip in slips:
        table.add_row(told_id(slip.task_id), printable(slip.tool), printable(slip.taken_at), printable(slip.server))
    console.print(table)
    return Ending.DONE
