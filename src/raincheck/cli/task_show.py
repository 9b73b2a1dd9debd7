"""`raincheck tasks show`: all that is known of one task, and what to do about it."""

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from raincheck.cli.advice import advise
from raincheck.cli.finding_tasks import find_task
from raincheck.cli.shown_task import print_task
from raincheck.cli.store_option import JsonOption, StoreOption, open_existing, run
from raincheck.cli.task_facts import document_of
from raincheck.clock import Clock
from raincheck.core.records import Task

# What follows a line with a backspace alone is printed as it stands.
EPILOG = """
Examples:

\b
  raincheck tasks show 019b76da40a1
  raincheck tasks show 019b76da40a1 --full --store /var/lib/tasks.db

The beginning of an id is enough if only one task's begins so. It ends with 0, with 1 if there is no such task, or
with 2 if the store can't be used.
"""


def show(
    ctx: typer.Context,
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task's id, or how it begins.")],
    store: StoreOption = None,
    full: Annotated[bool, typer.Option("--full", help="Print arguments, results and errors whole.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show all that is known of a task.

    What it is, what happened to it, and what to do next.
    """

    async def work(clock: Clock) -> bool:
        async with open_existing(store, clock) as opened:
            now = clock.now()
            task = await find_task(opened, task_id, now=now)
            document: dict[str, Any] = await document_of(opened, task, now=now)
        advice = advise_on(task, document, now, store)
        if as_json:
            typer.echo(json.dumps({**document, "advice": advice}, indent=2))
        else:
            print_task(task, document, advice, now=now, is_full=full)
        return True

    run(ctx, work)


def advise_on(task: Task, document: dict[str, Any], now: datetime, store: str | None) -> list[str]:
    return advise(task, [one["key"] for one in document["inputs"] if one["answered_at"] is None], now, store)
