"""`raincheck tasks ls` and `export`: list the tasks of a store, newest first, or print everything that is stored."""

import json
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from raincheck.cli.exit_codes import echo_err
from raincheck.cli.operator import (
    ErrorsOption,
    NamespaceOption,
    OwnerOption,
    StateOption,
    StatusOption,
    StoreOption,
    SubjectOption,
    ToolOption,
    open_operator_store,
    store_command,
)
from raincheck.cli.options import JsonOption
from raincheck.cli.output import results
from raincheck.cli.output.results import FILE_WIDTH
from raincheck.clock import Clock
from raincheck.core.records import Task
from raincheck.errors import ConfigurationError, TaskNotFound
from raincheck.operations.describe import format_age, format_id, format_owner_name, format_task_progress, printable
from raincheck.operations.select import Filters, NoSuchTask, find_task, select_tasks
from raincheck.operations.serialize import load_task_document, serialize_task
from raincheck.stores.base import Store
from raincheck.stores.requests import PAGE_LIMIT

DEFAULT_LIMIT = 50

COLUMNS = ("id", "namespace", "owner", "tool", "status", "age", "attempt")

WIDE_TERMINAL = 100
"""The width in characters from which a table shows all columns in full."""

UNWRAPPED_WIDTH = 10_000
"""A width in characters at which nothing is wrapped."""

MAX_COLUMN_WIDTHS = {"id": 16, "namespace": 10, "owner": 10, "tool": 14}
"""The maximum width of these columns on a narrow terminal."""

LS_EPILOG = """
Examples:

\b
  raincheck tasks ls
  raincheck tasks ls --store /var/lib/tasks.db --status failed --status cancelled
  raincheck tasks ls --tool build_report --owner alice --json
  raincheck tasks ls --errors

Exit codes: 0 success, also if there are no tasks; 2 the store can't be used.
"""


@store_command
async def ls(
    clock: Clock,
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


def print_tasks(tasks: list[Task], *, now: datetime, filters: Filters, has_more: bool) -> None:
    # Without a terminal each task is on one line, however long, for programs that read lines.
    console = results.make_console(width=UNWRAPPED_WIDTH)
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
    tool = task.tool.name if task.tool.version == "1" else f"{task.tool.name} v{task.tool.version}"
    return {
        "id": Text(format_id(task.id) if is_wide else format_id(task.id)[: MAX_COLUMN_WIDTHS["id"]]),
        "namespace": Text(printable(task.namespace)),
        "owner": Text(format_owner_name(task.owner)),
        "tool": Text(printable(tool)),
        "status": results.format_phase(task),
        "age": Text(format_age(task.created_at, now).removesuffix(" ago")),
        "attempt": Text(str(task.attempt_number)),
        "progress": Text(", ".join(filter(None, [attempt, format_task_progress(task)]))),
    }


EXPORT_EPILOG = """
Examples:

\b
  raincheck tasks export > tasks.jsonl
  raincheck tasks export --status failed --store /var/lib/tasks.db > failed.jsonl
  raincheck tasks export 019b76da40a1 019b76da4f03 | jq .history

Exit codes: 0 success; 1 a named task does not exist; 2 the store can't be used.
"""


@store_command
async def export(
    clock: Clock,
    task_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Only these tasks. A prefix of an id is enough.")
    ] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    owner: OwnerOption = None,
    tool: ToolOption = None,
    status: StatusOption = None,
    as_json: JsonOption = False,  # noqa: ARG001 - the output is always JSON
) -> bool:
    """Export tasks with all their data, as lines of JSON.

    Prints one line for each task, for a backup or a bug report.

    Encrypted data is not printed. `unreadable` names those fields.
    """
    filters = Filters(namespace, owner, tool, tuple(status or ()))
    if task_ids and not filters.is_empty:
        raise ConfigurationError("ids and filters can't be combined: give task ids, or filters such as --status")
    async with open_operator_store(store, clock) as opened:
        now = clock.now()
        if not task_ids:
            await _print(opened, select_tasks(opened, filters, now=now), now)
            return True
        missing: list[str] = []
        await _print(opened, _named(opened, task_ids, missing, now), now)
        return not missing


async def _named(store: Store, ids: list[str], missing: list[str], now: datetime) -> AsyncGenerator[Task]:
    for id_prefix in ids:
        try:
            yield await find_task(store, id_prefix, now=now)
        except NoSuchTask as error:
            missing.append(id_prefix)
            echo_err(str(error))


async def _print(store: Store, tasks: AsyncGenerator[Task], now: datetime) -> None:
    async for task in tasks:
        try:
            document = await load_task_document(store, task, now=now)
        except TaskNotFound:
            # Pruned since it was listed.
            continue
        typer.echo(json.dumps(document, separators=(",", ":")))
