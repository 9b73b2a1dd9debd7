"""`raincheck tasks purge`: delete tasks that have ended, before they expire."""

import json
import signal
import sys
from collections import Counter
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from raincheck.cli import INTERRUPTED
from raincheck.cli.operator import (
    NamespaceOption,
    OwnerOption,
    StoreOption,
    ToolOption,
    open_operator_store,
    store_command,
)
from raincheck.cli.options import JsonOption
from raincheck.clock import Clock
from raincheck.core.records import Task, TaskId
from raincheck.errors import ConfigurationError
from raincheck.operations.select import EndStatusChoice, Filters, parse_duration, select_tasks, with_end_statuses
from raincheck.stores.base import Store
from raincheck.stores.requests import DUE_NOW

BATCH_SIZE = 200
"""The number of tasks to delete at once. Servers can access the store between batches."""

EPILOG = """
Examples:

\b
  raincheck tasks purge --dry-run
  raincheck tasks purge --older-than 12h --status failed --status cancelled
  raincheck tasks purge --older-than 0s --store /var/lib/tasks.db --yes

Live tasks and their children are never deleted. Callers can no longer read the results of deleted tasks, even if
these were to be stored for longer. Exit codes: 0 success; 1 a task was not deleted; 2 the store can't be used, or the
deletion was not confirmed.
"""


@store_command
async def purge(
    clock: Clock,
    store: StoreOption = None,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="The minimum time since the end of the task: 90s, 12h, 7d, 2w.")
    ] = "7d",
    status: Annotated[
        list[EndStatusChoice] | None,
        typer.Option(metavar="STATUS", help=f"Only tasks that are {', '.join(EndStatusChoice)}. Repeatable."),
    ] = None,
    namespace: NamespaceOption = None,
    owner: OwnerOption = None,
    tool: ToolOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> bool:
    """Delete tasks that have ended.

    With all their data. Asks for confirmation first.
    """
    filters = with_end_statuses(Filters(namespace, owner, tool), status)
    age = parse_duration(older_than)
    async with open_operator_store(store, clock) as opened:
        now = clock.now()
        found = await find_ended(opened, filters, now - age)
        if dry_run or not found:
            _report(found, [], older_than, dry_run=dry_run, as_json=as_json)
            return True
        if not yes and not _confirm(found, can_ask=not as_json and sys.stdin.isatty()):
            typer.echo("nothing was deleted", err=True)
            return False
        deleted = await delete(opened, [task.id for task in found], now=now, shows_bar=not as_json)
    _report(found, deleted, older_than, dry_run=False, as_json=as_json)
    return len(deleted) == len(found)


async def find_ended(store: Store, filters: Filters, before: datetime) -> list[Task]:
    """Return the tasks that ended at or before a moment, including expired tasks that are still stored."""
    found = select_tasks(store, filters, now=DUE_NOW)
    return [task async for task in found if task.finished_at is not None and task.finished_at <= before]


async def delete(store: Store, ids: list[TaskId], *, now: datetime, shows_bar: bool) -> list[TaskId]:
    """Delete tasks in batches, and return those that were deleted."""
    deleted: list[TaskId] = []
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (shows_bar and console.is_terminal)) as bar:
        row = bar.add_task("deleting", total=len(ids))
        for first in range(0, len(ids), BATCH_SIZE):
            batch = ids[first : first + BATCH_SIZE]
            deleted += await store.prune(now=now, limit=BATCH_SIZE, only=batch)
            bar.advance(row, len(batch))
    return deleted


def _confirm(found: list[Task], *, can_ask: bool) -> bool:
    if not can_ask:
        raise ConfigurationError(
            f"{_count(len(found))} would be deleted, but there is no terminal to confirm it at: add --yes"
        )
    # The event loop would handle Ctrl-C only in its next iteration, after the answer.
    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(f"delete {_count(len(found))} ({_by_status(found)})?", err=True)
    except typer.Abort:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def _report(found: list[Task], deleted: list[TaskId], older_than: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        by_status = Counter(str(task.status) for task in found)
        report = {"dry_run": dry_run, "found": len(found), "deleted": len(deleted), "by_status": by_status}
        typer.echo(json.dumps(report, indent=2))
    elif not found:
        typer.echo(f"nothing to delete: no matching task ended more than {older_than} ago")
    elif dry_run:
        typer.echo(f"{_count(len(found))} would be deleted ({_by_status(found)})")
    else:
        remaining = len(found) - len(deleted)
        note = f"; {_count(remaining)} not deleted: a parent is live, or another process deleted the task"
        typer.echo(f"{_count(len(deleted))} deleted{note if remaining else ''}")


def _count(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"


def _by_status(found: list[Task]) -> str:
    return ", ".join(f"{count} {status}" for status, count in Counter(str(task.status) for task in found).items())
