"""`raincheck tasks ls`: the tasks of a store, newest first."""

import json
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.options import JsonOption, StoreOption, open_existing, run_on_store
from raincheck.cli.output import results
from raincheck.cli.output.results import WIDE
from raincheck.clock import Clock
from raincheck.core.records import Task, Tool
from raincheck.operations.describe import printable, told_age, told_id, told_state, told_who
from raincheck.operations.select import (
    ErrorsOption,
    Filters,
    NamespaceOption,
    OwnerOption,
    StateOption,
    StatusOption,
    SubjectOption,
    ToolOption,
    select,
)
from raincheck.operations.serialize import facts_of
from raincheck.stores.requests import PAGE_LIMIT

DEFAULT_LIMIT = 50

COLUMNS = ("id", "namespace", "owner", "tool", "status", "age", "attempt")

ROOMY = 100
"""From how many characters on a line has room for everything."""

LONGEST_LINE = 10_000
"""Characters, where nothing is wrapped."""

LONGEST = {"id": 16, "namespace": 10, "owner": 10, "tool": 14}
"""How long these are where it has not."""

# What follows a line with a backspace alone is printed as it stands.
EPILOG = """
Examples:

\b
  raincheck tasks ls
  raincheck tasks ls --store /var/lib/tasks.db --status failed --status cancelled
  raincheck tasks ls --tool build_report --owner alice --json
  raincheck tasks ls --errors

It ends with 0, also if there are none, or with 2 if the store can't be used.
"""


def ls(
    ctx: typer.Context,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    owner: OwnerOption = None,
    tool: ToolOption = None,
    status: StatusOption = None,
    state: StateOption = None,
    subject: SubjectOption = None,
    errors: ErrorsOption = False,
    limit: Annotated[int, typer.Option(min=1, help="How many to show at most.")] = DEFAULT_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """List tasks, newest first.

    Everybody's, of every server that uses the store.
    """
    filters = Filters(namespace, owner, tool, tuple(status or ()), state, subject, errors)

    async def work(clock: Clock) -> bool:
        async with open_existing(store, clock) as opened:
            now = clock.now()
            found: list[Task] = []
            async for task in select(opened, filters, now=now, page_size=min(limit + 1, PAGE_LIMIT)):
                found.append(task)
                if len(found) > limit:
                    break
        if as_json:
            typer.echo(json.dumps([facts_of(task) for task in found[:limit]], indent=2))
        else:
            print_tasks(found[:limit], now=now, filters=filters, has_more=len(found) > limit)
        return True

    run_on_store(ctx, work)


def print_tasks(
    tasks: list[Task], *, now: datetime, filters: Filters, has_more: bool, console: Console | None = None
) -> None:
    # Without a terminal, whoever reads lines finds one for each task, however long that is.
    console = console or results.make_console(wide=LONGEST_LINE)
    if not tasks:
        console.print("no tasks" if filters.is_anything else "no tasks like that", soft_wrap=True)
        return
    console.print(task_table(tasks, now, console.width))
    if has_more:
        console.print(Text(f"and more than these {len(tasks)}: see them with --limit", "dim"))


def task_table(tasks: list[Task], now: datetime, width: int = WIDE) -> Table:
    """A row for each task. Namespaces and owners are shown where there are several.

    Where there is little room, names and ids are cut, and an attempt that is not the first is told with the progress.
    """
    has_room = width >= ROOMY
    shows = {
        "namespace": len({task.namespace for task in tasks}) > 1,
        "owner": len({task.owner for task in tasks}) > 1,
        "attempt": has_room,
    }
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in COLUMNS:
        if shows.get(title, True):
            longest = None if has_room else LONGEST.get(title)
            justify = "right" if title == "attempt" else "left"
            table.add_column(title, no_wrap=True, justify=justify, overflow="ellipsis", max_width=longest)
    table.add_column("progress", ratio=1, overflow="fold")
    for task in tasks:
        cells = _cells(task, now, has_room=has_room)
        table.add_row(*(cell for title, cell in cells.items() if shows.get(title, True)))
    return table


def _cells(task: Task, now: datetime, *, has_room: bool) -> dict[str, Text]:
    again = "" if has_room or task.fence < 2 else f"attempt {task.fence}"
    return {
        "id": Text(told_id(task.id) if has_room else told_id(task.id)[: LONGEST["id"]]),
        "namespace": Text(printable(task.namespace)),
        "owner": Text(told_who(task.owner)),
        "tool": Text(printable(_name(task.tool))),
        "status": results.told_phase(task),
        "age": Text(told_age(task.created_at, now).removesuffix(" ago")),
        "attempt": Text(str(task.fence)),
        "progress": Text(", ".join(filter(None, [again, told_state(task)]))),
    }


def _name(tool: Tool) -> str:
    return tool.name if tool.version == "1" else f"{tool.name} v{tool.version}"
