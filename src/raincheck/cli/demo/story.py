"""The demo's scenario, its command and its summary: all call, the server is killed, and all get their results."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from mcp.client.session import ClientRequestContext, ElicitationFnT
from mcp_types import ElicitRequestParams, ElicitResult
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.demo.callers import Person, call_with_tasks, call_without_tasks
from raincheck.cli.demo.screen import BAD, GOOD, QUIET, CallerRow, DemoScreen, DemoServer, DisplayMode
from raincheck.cli.exit_codes import run_with_signals
from raincheck.clock import SystemClock
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, TaskId
from raincheck.stores.factory import open_store

CHAPTERS = 12
KILLED_AT = 3
"""The minimum number of chapters that the first caller has when the server is killed."""

DOWN_FOR = 1.0
"""Seconds without a server."""

V2026, V2025, FALLBACK = "tasks of 2026-07-28", "tasks of 2025-11-25", "no tasks"
CALLERS = {"anna": V2026, "ben": V2025, "cleo": FALLBACK}


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The outcome of the demo, by the callers' names."""

    results: Mapping[str, Mapping[str, Any]]
    tasks: Mapping[str, str]
    printed_twice: int
    """Chapters that were interrupted half-way, and repeated."""

    @property
    def is_correct(self) -> bool:
        pages = sum(10 * chapter for chapter in range(1, CHAPTERS + 1))
        return self.results.keys() == CALLERS.keys() and all(
            result.get("title") == title_of(name) and result.get("pages") == pages
            for name, result in self.results.items()
        )


def title_of(name: str) -> str:
    return f"The book of {name}"


async def run_scenario(board: DemoScreen, folder: Path, person: Person) -> DemoResult:
    """Run the whole scenario. The store is left in the folder."""
    stage = DemoServer(folder)
    board.print_event("a server starts, on one SQLite file; its tool prints a book, chapter by chapter")
    await stage.start()
    board.rows = [CallerRow(name, speaks, total=CHAPTERS) for name, speaks in CALLERS.items()]
    board.start()
    try:
        async with asyncio.TaskGroup() as callers:
            ask = _elicitation_callback(board, person)
            jobs = {line.name: callers.create_task(_call(board, line, stage.url, ask)) for line in board.rows}
            await board.wait_until(
                lambda: board.rows[0].done >= KILLED_AT and all(line.has_task for line in board.rows)
            )
            await _crash(board, stage)
        board.finish()
    finally:
        board.pause()
        await stage.kill()
    ended = {name: job.result() for name, job in jobs.items()}
    results = {name: result for name, (_, result) in ended.items()}
    return DemoResult(results, {name: task for name, (task, _) in ended.items()}, stage.printed_twice)


async def _crash(board: DemoScreen, stage: DemoServer) -> None:
    await stage.kill()
    board.print_event("the server is killed in the middle of it (SIGKILL)", BAD)
    for line in board.rows:
        board.update(line, status="server gone")
    board.snapshot()
    await asyncio.sleep(DOWN_FOR)
    await stage.start()
    board.print_event("another one starts on the same file: what was unfinished goes on where it was", GOOD)


async def _call(board: DemoScreen, line: CallerRow, url: str, ask: ElicitationFnT) -> tuple[str, Mapping[str, Any]]:
    arguments: dict[str, Any] = {"title": title_of(line.name), "chapters": CHAPTERS}
    if line.protocol == FALLBACK:
        return await call_without_tasks(board, line, url, arguments)
    if line.protocol == V2025:
        return await call_with_tasks(board, line, url, arguments, "legacy", None)
    return await call_with_tasks(board, line, url, {**arguments, "special": True}, "auto", ask)


def _elicitation_callback(board: DemoScreen, person: Person) -> ElicitationFnT:
    async def ask(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        board.pause()
        try:
            is_yes, by = await person.ask(params.message)
        finally:
            board.start()
        board.print_event(f"the task asks: {params.message} {'Yes' if is_yes else 'No'}, {by}", "cyan")
        return ElicitResult(action="accept", content={"leather": is_yes})

    return ask


OK = ("  ok  ", GOOD)


async def run(console: Console, folder: Path, show: DisplayMode) -> tuple[DemoResult, Sequence[HistoryEntry]]:
    """Run the demo, and return its outcome and the history of the first task."""
    person = Person(console, is_there=console.is_terminal and sys.stdin.isatty())
    ending = await run_scenario(DemoScreen(console, show), folder, person)
    async with open_store(folder / "tasks.db") as store:
        task_id = TaskId(next(iter(ending.tasks.values())))
        history = await store.history(task_id, Scope.for_namespace("demo"), now=SystemClock().now())
    return ending, history


def print_summary(console: Console, ending: DemoResult, history: Sequence[HistoryEntry]) -> None:
    """Print each caller's result, and the first task's history."""
    console.print()
    for name, result in ending.results.items():
        console.print(Text.assemble(OK, f"{name} has {json.dumps(result)}"), soft_wrap=True)
    twice = ending.printed_twice
    told = "no chapter was printed twice" if not twice else f"printed again, since they were cut off half-way: {twice}"
    console.print(Text.assemble(OK, told))
    first = next(iter(ending.tasks))
    console.print(Text(f"\nWhat happened to {first}'s task, as the store remembers it:", "bold"))
    table = Table(box=None, padding=(0, 2), show_header=False)
    for event, entries in groupby(history, key=lambda entry: entry.event):
        first_entry, *others = entries
        after = f"+{(first_entry.at - history[0].at).total_seconds():.1f} s"
        notes = first_entry.note or ""
        note = f"{notes} … {others[-1].note}" if others else notes
        table.add_row(Text(after, QUIET), str(event), str(first_entry.after), Text(note, QUIET))
    console.print(table)
    if not ending.is_correct:
        console.print(Text("Something did not come out right: see above.", BAD))


def history_entry_to_json(entry: HistoryEntry) -> dict[str, str | int | None]:
    return {"at": entry.at.isoformat(), "event": str(entry.event), "phase": str(entry.after), "attempt": entry.attempt}


EPILOG = """
Examples:

\b
  raincheck demo
  raincheck demo --json

It takes about fifteen seconds, and needs no network. It ends with 0, with 1 if something did not come out right, or
with 130 if you stop it by Ctrl-C.
"""


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print what came of it as JSON, and nothing else.")] = False,
) -> None:
    """See it work: three kinds of callers, one tool, and a server that is killed in the middle."""
    # Imported here: the SDK takes most of a second to import, and other commands don't need it.
    from raincheck.cli.remote.connect import silence_library_logs

    # The display reports broken connections instead of the SDK's log.
    silence_library_logs()
    console = Console(quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="raincheck-demo-") as folder:
        ending, history = run_with_signals(run(console, Path(folder), "alive" if console.is_terminal else "lines"))
    if as_json:
        facts = {"results": ending.results, "tasks": ending.tasks, "printed_twice": ending.printed_twice}
        typer.echo(
            json.dumps(
                facts | {"right": ending.is_correct, "history": [history_entry_to_json(entry) for entry in history]}
            )
        )
    else:
        print_summary(console, ending, history)
    raise typer.Exit(0 if ending.is_correct else 1)
