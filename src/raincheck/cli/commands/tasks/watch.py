"""`raincheck tasks watch`: see tasks change until they end."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from raincheck.cli.commands.tasks.ls import task_table
from raincheck.cli.options import JsonOption, StoreOption, open_existing, run_on_store
from raincheck.cli.output.results import make_console, told_status
from raincheck.clock import Clock
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task, TaskId
from raincheck.operations.describe import printable, told_id, told_state, told_tool
from raincheck.operations.select import find_task
from raincheck.operations.serialize import facts_of, said_moment
from raincheck.operations.watch import Seen, Watch
from raincheck.stores.base import Store

# What follows a line with a backspace alone is printed as it stands.
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
"""How often a second the terminal is drawn again, so that ages grow."""


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
        async with open_existing(store, clock) as opened:
            ids = await _ids(opened, task_ids, clock)
            console = make_console()
            if as_json:
                return await follow(Watch(opened, ids, now=clock.now()), print_json)
            if console.is_terminal:
                board = Board(console, clock)
                return await follow(Watch(opened, ids, now=clock.now()), board.update, board.live())
            return await follow(Watch(opened, ids, now=clock.now()), line_printer(console))

    run_on_store(ctx, work)


async def _ids(store: Store, given: list[str] | None, clock: Clock) -> list[TaskId] | None:
    return [(await find_task(store, one, now=clock.now())).id for one in given] if given else None


async def follow(
    watch: Watch, tell: Callable[[Seen], None], shown: AbstractContextManager[object] | None = None
) -> bool:
    """Tell of each change, and say at the end whether all tasks have completed."""
    is_fine = True
    with shown or nullcontext():
        async for seen in watch.changes():
            tell(seen)
            task = seen.task
            has_ended = task is None or task.is_terminal
            if has_ended and (task is None or task.phase is not Phase.COMPLETED or task.is_error):
                is_fine = False
    return is_fine


def print_json(seen: Seen) -> None:
    """A line of JSON."""
    told = {"id": seen.task_id, "status": None} if seen.task is None else facts_of(seen.task)
    typer.echo(json.dumps(told, separators=(",", ":")))


def line_printer(console: Console) -> Callable[[Seen], None]:
    """Prints a line for each change."""

    def tell(seen: Seen) -> None:
        console.print(Text("  ").join(_cells(seen)), soft_wrap=True)
        console.file.flush()

    return tell


def _cells(seen: Seen) -> list[Text]:
    if seen.task is None:
        return [Text(told_id(seen.task_id)), Text("is not kept any longer")]
    task = seen.task
    cells = [Text(said_moment(task.updated_at) or ""), Text(told_id(task.id)), Text(told_tool(task.tool))]
    state = told_state(task)
    return [*cells, told_status(task), *([Text(state)] if state else [])]


class Board:
    """The tasks on a terminal: the living first, and no more than there is room for."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._tasks: dict[TaskId, Task] = {}
        self._gone: list[TaskId] = []

    def live(self) -> Live:
        """Draws it now and then, and leaves what it drew last."""
        return Live(get_renderable=self.render, console=self._console, refresh_per_second=REFRESH)

    def update(self, seen: Seen) -> None:
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
        parts += [Text(f"{printable(told_id(one))} is not kept any longer") for one in self._gone[-3:]]
        return Group(*(parts or [Text("no tasks live", "dim")]))
