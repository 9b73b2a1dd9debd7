"""`raincheck tasks watch`: show tasks as they change, until they end."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from raincheck.cli.commands.tasks.ls import task_table
from raincheck.cli.operator import StoreOption, open_operator_store, store_command
from raincheck.cli.options import JsonOption
from raincheck.cli.output.results import format_status, make_console
from raincheck.clock import Clock
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task, TaskId
from raincheck.operations.describe import format_id, format_task_progress, format_tool, printable
from raincheck.operations.select import find_task
from raincheck.operations.serialize import format_timestamp, serialize_task
from raincheck.operations.watch import TaskSnapshot, TaskWatcher

EPILOG = """
Examples:

\b
  raincheck tasks watch
  raincheck tasks watch 019b76da40a1 && echo done
  raincheck tasks watch --json --store /var/lib/tasks.db | jq -r .status_message

Without an id it shows all live tasks, including those that start later, until no task is live. Ctrl-C stops the
command, not the tasks. Exit codes: 0 all tasks have completed; 1 a task failed, was cancelled, ended with an error or
does not exist; 2 the store can't be used.
"""

REFRESH = 4
"""Redraws of the terminal per second, so that ages stay current."""


@store_command
async def watch(
    clock: Clock,
    task_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The tasks. A prefix of an id is enough.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> bool:
    """Show tasks as they change, until they end.

    A live table on a terminal, else a line for each change.
    """
    async with open_operator_store(store, clock) as opened:
        ids = [(await find_task(opened, id_prefix, now=clock.now())).id for id_prefix in task_ids or ()]
        watcher = TaskWatcher(opened, ids or None, now=clock.now())
        console = make_console()
        if as_json:
            return await follow(watcher, print_json)
        if console.is_terminal:
            table = LiveTaskTable(console, clock)
            return await follow(watcher, table.update, table.live())
        return await follow(watcher, partial(print_line, console))


async def follow(
    watcher: TaskWatcher, report: Callable[[TaskSnapshot], None], display: AbstractContextManager[object] | None = None
) -> bool:
    """Report each change, and return at the end whether all tasks have completed."""
    all_completed = True
    with display or nullcontext():
        async for snapshot in watcher.changes():
            report(snapshot)
            task = snapshot.task
            has_ended = task is None or task.is_terminal
            if has_ended and (task is None or task.phase is not Phase.COMPLETED or task.is_error):
                all_completed = False
    return all_completed


def print_json(snapshot: TaskSnapshot) -> None:
    """Print a change as a line of JSON."""
    data = {"id": snapshot.task_id, "status": None} if snapshot.task is None else serialize_task(snapshot.task)
    typer.echo(json.dumps(data, separators=(",", ":")))


def print_line(console: Console, snapshot: TaskSnapshot) -> None:
    """Print a change as a line of text."""
    console.print(Text("  ").join(_cells(snapshot)), soft_wrap=True)
    console.file.flush()


def _cells(snapshot: TaskSnapshot) -> list[Text]:
    if snapshot.task is None:
        return [Text(format_id(snapshot.task_id)), Text("is no longer stored")]
    task = snapshot.task
    cells = [Text(format_timestamp(task.updated_at) or ""), Text(format_id(task.id)), Text(format_tool(task.tool))]
    state = format_task_progress(task)
    return [*cells, format_status(task), *([Text(state)] if state else [])]


class LiveTaskTable:
    """A table of the tasks on a terminal: live tasks first, as many as fit."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._tasks: dict[TaskId, Task] = {}
        self._deleted: list[TaskId] = []

    def live(self) -> Live:
        """Return a display that refreshes regularly, and leaves its last state on the terminal."""
        return Live(get_renderable=self.render, console=self._console, refresh_per_second=REFRESH)

    def update(self, snapshot: TaskSnapshot) -> None:
        if snapshot.task is None:
            self._tasks.pop(snapshot.task_id, None)
            self._deleted.append(snapshot.task_id)
        else:
            self._tasks[snapshot.task_id] = snapshot.task

    def render(self) -> RenderableType:
        max_rows = max(3, self._console.height - 4)
        tasks = sorted(self._tasks.values(), key=lambda task: (not task.is_terminal, task.created_at), reverse=True)
        parts: list[RenderableType] = (
            [task_table(tasks[:max_rows], self._clock.now(), self._console.width)] if tasks else []
        )
        if len(tasks) > max_rows:
            parts.append(Text(f"and {len(tasks) - max_rows} more", "dim"))
        parts += [Text(f"{printable(format_id(task_id))} is no longer stored") for task_id in self._deleted[-3:]]
        return Group(*(parts or [Text("no tasks live", "dim")]))
