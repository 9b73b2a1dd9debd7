"""`raincheck tasks watch`: show tasks as they change, until they end."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from raincheck.cli.commands.tasks.ls import task_table
from raincheck.cli.options import JsonOption, StoreOption, open_operator_store, run_on_store
from raincheck.cli.output.results import format_status, make_console
from raincheck.clock import Clock
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task, TaskId
from raincheck.operations.describe import format_id, format_task_progress, format_tool, printable
from raincheck.operations.select import find_task
from raincheck.operations.serialize import format_timestamp, serialize_task
from raincheck.operations.watch import TaskSnapshot, TaskWatcher
from raincheck.stores.base import Store

# Text after a line that contains only \b is not rewrapped.
EPILOG = """
Examples:

\b
  raincheck tasks watch
  raincheck tasks watch 019b76da40a1 && echo it is done
  raincheck tasks watch --json --store /var/lib/tasks.db | jq -r .status_message

Without an id it shows all tasks that live, and those that begin meanwhile, until none lives any more. It ends with 0
if all have completed, with 1 if one failed, was cancelled, ended with an error or is not there, or with 2 if the store
can't be used. Ctrl-C stops the watching, and nothing else.
"""

REFRESH = 4
"""Redraws of the terminal per second, so that ages stay current."""


def watch(
    ctx: typer.Context,
    task_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The tasks. The beginning of an id is enough.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show tasks as they change, until they end.

    Live on a terminal, else a line for each change.
    """

    async def work(clock: Clock) -> bool:
        async with open_operator_store(store, clock) as opened:
            ids = await _ids(opened, task_ids, clock)
            console = make_console()
            if as_json:
                return await follow(TaskWatcher(opened, ids, now=clock.now()), print_json)
            if console.is_terminal:
                board = LiveTaskTable(console, clock)
                return await follow(TaskWatcher(opened, ids, now=clock.now()), board.update, board.live())
            return await follow(TaskWatcher(opened, ids, now=clock.now()), line_printer(console))

    run_on_store(ctx, work)


async def _ids(store: Store, given: list[str] | None, clock: Clock) -> list[TaskId] | None:
    return [(await find_task(store, one, now=clock.now())).id for one in given] if given else None


async def follow(
    watcher: TaskWatcher, report: Callable[[TaskSnapshot], None], display: AbstractContextManager[object] | None = None
) -> bool:
    """Report each change, and return at the end whether all tasks have completed."""
    is_fine = True
    with display or nullcontext():
        async for seen in watcher.changes():
            report(seen)
            task = seen.task
            has_ended = task is None or task.is_terminal
            if has_ended and (task is None or task.phase is not Phase.COMPLETED or task.is_error):
                is_fine = False
    return is_fine


def print_json(seen: TaskSnapshot) -> None:
    """Print a change as a line of JSON."""
    told = {"id": seen.task_id, "status": None} if seen.task is None else serialize_task(seen.task)
    typer.echo(json.dumps(told, separators=(",", ":")))


def line_printer(console: Console) -> Callable[[TaskSnapshot], None]:
    """Return a function that prints a line for each change."""

    def tell(seen: TaskSnapshot) -> None:
        console.print(Text("  ").join(_cells(seen)), soft_wrap=True)
        console.file.flush()

    return tell


def _cells(seen: TaskSnapshot) -> list[Text]:
    if seen.task is None:
        return [Text(format_id(seen.task_id)), Text("is not kept any longer")]
    task = seen.task
    cells = [Text(format_timestamp(task.updated_at) or ""), Text(format_id(task.id)), Text(format_tool(task.tool))]
    state = format_task_progress(task)
    return [*cells, format_status(task), *([Text(state)] if state else [])]


class LiveTaskTable:
    """A table of the tasks on a terminal: live tasks first, as many as fit."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._tasks: dict[TaskId, Task] = {}
        self._gone: list[TaskId] = []

    def live(self) -> Live:
        """Return a display that refreshes regularly, and leaves its last state on the terminal."""
        return Live(get_renderable=self.render, console=self._console, refresh_per_second=REFRESH)

    def update(self, seen: TaskSnapshot) -> None:
        if seen.task is None:
            self._tasks.pop(seen.task_id, None)
            self._gone.append(seen.task_id)
        else:
            self._tasks[seen.task_id] = seen.task

    def render(self) -> RenderableType:
        room = max(3, self._console.height - 4)
        tasks = sorted(self._tasks.values(), key=lambda task: (not task.is_terminal, task.created_at), reverse=True)
        parts: list[RenderableType] = (
            [task_table(tasks[:room], self._clock.now(), self._console.width)] if tasks else []
        )
        if len(tasks) > room:
            parts.append(Text(f"and {len(tasks) - room} more", "dim"))
        parts += [Text(f"{printable(format_id(one))} is not kept any longer") for one in self._gone[-3:]]
        return Group(*(parts or [Text("no tasks live", "dim")]))
