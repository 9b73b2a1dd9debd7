"""Going on with a call that another command left under way."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import typer
from mcp.client.session import ElicitationFnT
from mcp.shared.exceptions import MCPError

from raincheck.cli.book import Ledger, find_slip
from raincheck.cli.book_option import book_path
from raincheck.cli.calling import Scene, make_manner, make_target
from raincheck.cli.contact import Told
from raincheck.cli.endings import Ending, Unusable, tell
from raincheck.cli.live import words
from raincheck.cli.manner import Manner
from raincheck.cli.plain import json_of, printable, told_id
from raincheck.cli.reaching import Guard, reach
from raincheck.cli.secrecy import shown_server
from raincheck.cli.staying import cancel, conclude, tell_asked
from raincheck.cli.wishes import Wishes
from raincheck.client import Handle, ServerUnreachable, TaskBook, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import TaskNotFound


@asynccontextmanager
async def taken_up(
    given: str,
    wishes: Wishes,
    *,
    asked: ElicitationFnT | None = None,
    guard: Guard | None = None,
    told: Told | None = None,
    keeps: bool = True,
) -> AsyncGenerator[tuple[Handle, Manner]]:
    """A call that is under way, and its server. If it is kept, its result can be fetched again.

    Raises:
        Unusable: there is no such call, or its server can't be reached.
    """
    book = Ledger(book_path(wishes.named_book))
    slip = await find_slip(book, given)
    target = make_target(wishes.server or slip.server, wishes, is_kept=wishes.server is None)
    if target.name != slip.server:
        raise Unusable(
            f"task {told_id(slip.task_id)} is known to {shown_server(slip.server)}, and not to {target.shown}"
        )
    manner = make_manner(target, book, wishes)
    kept = None if keeps else book
    async with reach(target, book=kept, asked=asked, within=wishes.within, guard=guard, told=told) as client:
        handle = client.take_up(slip)
        try:
            yield handle, manner
        except TaskNotFound:
            manner.not_found(slip)
        except MCPError as error:
            manner.fail(slip.tool, error, slip)
        except ServerUnreachable as error:
            raise typer.Exit(manner.go_on_lost(slip, error)) from error


async def wait_for(given: str, wishes: Wishes) -> Ending:
    """Wait for the end of a task."""
    slip = await find_slip(TaskBook(book_path(wishes.named_book)), given)
    scene = Scene(slip.tool, wishes.timeout)
    with scene.set():
        there, shown = scene.vigil.until_there, scene.shown
        async with taken_up(slip.task_id, wishes, asked=scene.asker, guard=there, told=shown, keeps=False) as taken:
            handle, manner = taken
            scene.vigil.begin()
            return await scene.stay(handle, manner)


async def look_at(given: str, wishes: Wishes) -> Ending:
    """Show a task as it is."""
    async with taken_up(given, wishes) as (handle, manner):
        update = await handle.look()
        assert update is not None  # noqa: S101 - of a task
        if update.is_ended:
            return await conclude(manner, handle.result(), handle)
        if update.status is Status.INPUT_REQUIRED:
            await tell_asked(manner, handle, None)
            return Ending.ASKS
        _show(update, as_json=wishes.as_json)
        return Ending.GOES_ON


async def cancel_task(given: str, wishes: Wishes) -> Ending:
    """Stop a task."""
    async with taken_up(given, wishes) as (handle, manner):
        return await cancel(manner, handle)


async def forget_task(book: TaskBook, given: str, *, as_json: bool) -> Ending:
    """Strike a call off the book."""
    slip = await find_slip(book, given)
    await book.remove(slip)
    if as_json:
        typer.echo(json_of({"task_id": slip.task_id, "forgotten": True}))
    server = printable(shown_server(slip.server))
    tell(f"task {told_id(slip.task_id)} of {server} is struck off the book; it was not stopped")
    return Ending.DONE


def _show(update: Update, *, as_json: bool) -> None:
    progress = update.progress
    if as_json:
        facts = {
            "task_id": update.task_id,
            "status": str(update.status),
            "message": update.message,
            "progress": None if progress is None else {"done": progress.done, "total": progress.total},
        }
        typer.echo(json_of(facts))
        return
    said = [str(update.status), *([] if progress is None else [words(progress)]), *filter(None, [update.message])]
    typer.echo(printable(", ".join(said)))
