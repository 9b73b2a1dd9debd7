"""The demo from its beginning to what is shown of its end."""

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.demo.board import BAD, GOOD, QUIET, Board, Show
from raincheck.cli.demo.person import Person
from raincheck.cli.demo.story import Ending, play
from raincheck.clock import SystemClock
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, TaskId
from raincheck.opening import open_store

OK = ("  ok  ", GOOD)


async def run(console: Console, folder: Path, show: Show) -> tuple[Ending, Sequence[HistoryEntry]]:
    """Play it, and return what came of it and what the store remembers of the first task."""
    person = Person(console, is_there=console.is_terminal and sys.stdin.isatty())
    ending = await play(Board(console, show), folder, person)
    async with open_store(folder / "tasks.db") as store:
        task_id = TaskId(next(iter(ending.tasks.values())))
        history = await store.history(task_id, Scope.within("demo"), now=SystemClock().now())
    return ending, history


def show_ending(console: Console, ending: Ending, history: Sequence[HistoryEntry]) -> None:
    """What everybody has got, and what happened to the first task."""
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
    if not ending.is_right:
        console.print(Text("Something did not come out right: see above.", BAD))


def row_of(entry: HistoryEntry) -> dict[str, str | int | None]:
    return {"at": entry.at.isoformat(), "event": str(entry.event), "phase": str(entry.after), "attempt": entry.attempt}
