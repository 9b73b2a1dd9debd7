"""`raincheck tasks ls`: list the tasks of a store, newest first."""

import json
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.options import (
    ErrorsOption,
    JsonOption,
    NamespaceOption,
    OwnerOption,
    StateOption,
    StatusOption,
    StoreOption,
    SubjectOption,
    ToolOption,
    open_operator_store,
    run_on_store,
)
from raincheck.cli.output import results
from raincheck.cli.output.results import FILE_WIDTH
from raincheck.clock import Clock
from raincheck.core.records import Task, Tool
from raincheck.operations.describe import format_age, format_id, format_owner_name, format_task_progress, printable
from raincheck.operations.select import Filters, select_tasks
from raincheck.operations.serialize import serialize_task
from raincheck.stores.requests import PAGE_LIMIT

DEFAULT_LIMIT = 50

COLUMNS = ("id", "namespace", "owner", "tool", "status", "age", "attempt")

WIDE_TERMINAL = 100
"""The width in characters from which a table shows all columns in full."""

UNWRAPPED_WIDTH = 10_000
"""A width in characters at which nothing is wrapped."""

MAX_COLUMN_WIDTHS = {"id": 16, "namespace": 10, "owner": 10, "tool": 14}
"""The maximum width of these columns on a narrow terminal."""

# Text after a line that contains only \b is not rewrapped.
EPILOG = """
Examples:

\b
  raincheck tasks ls
  raincheck tasks ls --store /var/lib/tasks.db --status failed --status cancelled
  raincheck tasks ls --tool build_report --owner alice --json
  raincheck tasks ls --errors

Exit codes: 0 success, also if there are no tasks; 2 the store can't be used.
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
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of tasks to show.")] = DEFAULT_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """List tasks, newest first.

    Includes the tasks of all owners and all servers that use the store.
    """
    filters = Filters(namespace, owner, tool, tuple(status or ()), state, subject, errors)

    async def work(clock: Clock) -> bool:
        async with open_operator_store(store, clock) as opened:
            now = clock.now()
            tasks: list[Task] = []
            async for task in select_tasks(opened, filters, now=now, page_size=min(limit + 1, PAGE_LIMIT)):
                tasks.append(task)
                if len(tasks) > limit:
                    break
        if as_json:
            typer.echo(json.dumps([serialize_task(task) for task in tasks[:limit]], indent=2))
        else:
            print_tasks(tasks[:limit], now=now, filters=filters, has_more=len(tasks) > limit)
        return True

    run_on_store(ctx, work)


def print_tasks(
    tasks: list[Task], *, now: datetime, filters: Filters, has_more: bool, console: Console | None = None
) -> None:
    # Without a terminal each task is on one line, however long, for programs that read lines.
    console = console or results.make_console(width=UNWRAPPED_WIDTH)
    if not tasks:
        console.print("no tasks" if filters.is_empty else "no matching tasks", soft_wrap=True)
        return
    console.print(task_table(tasks, now, console.width))
    if has_more:
        console.print(Text(f"only the newest {len(tasks)} are shown: increase --limit to see more", "dim"))


def task_table(tasks: list[Task], now: datetime, width: int = FILE_WIDTH) -> Table:
    """Return a table with a row for each task. Namespaces and owners are shown if there are several.

    On a narrow terminal, names and ids are cut, and an attempt after the first is shown with the progress.
    """
    is_wide = width >= WIDE_TERMINAL
    shows = {
        "namespace": len({task.namespace for task in tasks}) > 1,
        "owner": len({task.owner for task in tasks}) > 1,
        "attempt": is_wide,
    }
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in COLUMNS:
        if shows.get(title, True):
            max_width = None if is_wide else MAX_COLUMN_WIDTHS.get(title)
            justify = "right" if title == "attempt" else "left"
            table.add_column(title, no_wrap=True, justify=justify, overflow="ellipsis", max_width=max_width)
    table.add_column("progress", ratio=1, overflow="fold")
    for task in tasks:
        cells = _cells(task, now, is_wide=is_wide)
        table.add_row(*(cell for title, cell in cells.items() if shows.get(title, True)))
    return table


def _cells(task: Task, now: datetime, *, is_wide: bool) -> dict[str, Text]:
    attempt = "" if is_wide or task.attempt_number < 2 else f"attempt {task.attempt_number}"
    return {
        "id": Text(format_id(task.id) if is_wide else format_id(task.id)[: MAX_COLUMN_WIDTHS["id"]]),
        "namespace": Text(printable(task.namespace)),
        "owner": Text(format_owner_name(task.owner)),
        "tool": Text(printable(_tool_name(task.tool))),
        "status": results.format_phase(task),
        "age": Text(format_age(task.created_at, now).removesuffix(" ago")),
        "attempt": Text(str(task.attempt_number)),
        "progress": Text(", ".join(filter(None, [attempt, format_task_progress(task)]))),
    }


def _tool_name(tool: Tool) -> str:
    return tool.name if tool.version == "1" else f"{tool.name} v{tool.version}"
