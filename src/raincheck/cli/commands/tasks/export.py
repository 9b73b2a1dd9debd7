"""`raincheck tasks export`: print everything that is stored of tasks, as lines of JSON."""

import json
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated

import typer

from raincheck.cli.exit_codes import echo_err
from raincheck.cli.options import (
    JsonOption,
    NamespaceOption,
    OwnerOption,
    StatusOption,
    StoreOption,
    ToolOption,
    open_operator_store,
    run_on_store,
)
from raincheck.clock import Clock
from raincheck.core.records import Task
from raincheck.errors import ConfigurationError, TaskNotFound
from raincheck.operations.select import Filters, NoSuchTask, find_task, select_tasks
from raincheck.operations.serialize import load_task_document
from raincheck.stores.base import Store

# Text after a line that contains only \b is not rewrapped.
EPILOG = """
Examples:

\b
  raincheck tasks export > tasks.jsonl
  raincheck tasks export --status failed --store /var/lib/tasks.db > failed.jsonl
  raincheck tasks export 019b76da40a1 019b76da4f03 | jq .history

Exit codes: 0 success; 1 a named task does not exist; 2 the store can't be used.
"""


def export(
    ctx: typer.Context,
    task_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Only these tasks. A prefix of an id is enough.")
    ] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    owner: OwnerOption = None,
    tool: ToolOption = None,
    status: StatusOption = None,
    as_json: JsonOption = False,  # noqa: ARG001 - the output is always JSON
) -> None:
    """Export tasks with all their data, as lines of JSON.

    Prints one line for each task, for a backup or a bug report.

    Encrypted data is not printed. `unreadable` names those fields.
    """
    filters = Filters(namespace, owner, tool, tuple(status or ()))

    async def work(clock: Clock) -> bool:
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

    run_on_store(ctx, work)


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
