"""The demo's scenario, command and summary: three callers call, the server is killed, and all get their results.

One caller uses each protocol generation, and one has no tasks, like most hosts. The tool's question is shown to the
user, who may answer it within a timeout.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from mcp.client import Client
from mcp.client.session import ClientRequestContext, ElicitationFnT
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.demo.screen import BAD, GOOD, QUIET, CallerRow, DemoScreen, DemoServer, DisplayMode
from raincheck.cli.exit_codes import run_with_signals
from raincheck.cli.remote.session import silence_library_logs
from raincheck.client import TaskClient
from raincheck.client.connection import ServerConnection
from raincheck.clock import SystemClock
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, TaskId
from raincheck.core.values import Json
from raincheck.stores.factory import open_store
from raincheck.wire.fields import as_object

TOOL = "print_book"

CHAPTERS = 12
CHAPTERS_BEFORE_KILL = 3
"""The number of chapters of the first caller after which the server is killed."""

DOWNTIME = 1.0
"""Seconds without a server."""

V2026, V2025, FALLBACK = "tasks of 2026-07-28", "tasks of 2025-11-25", "no tasks"
CALLERS = {"anna": V2026, "ben": V2025, "cleo": FALLBACK}


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The outcome of the demo, by the callers' names."""

    results: Mapping[str, Mapping[str, Any]]
    tasks: Mapping[str, str]
    printed_twice: int
    """Chapters that were interrupted, and printed again."""
    history: Sequence[HistoryEntry]
    """The history of the first task."""

    @property
    def is_correct(self) -> bool:
        pages = sum(10 * chapter for chapter in range(1, CHAPTERS + 1))
        return self.results.keys() == CALLERS.keys() and all(
            result.get("title") == title_of(name) and result.get("pages") == pages
            for name, result in self.results.items()
        )


def title_of(name: str) -> str:
    return f"The book of {name}"


ANSWER_TIMEOUT = 6.0


async def _ask_person(console: Console, question: str) -> tuple[bool, str]:
    """Ask at the terminal, with a timeout. Return whether the answer is yes, which is the default, and its source."""
    if not (console.is_terminal and sys.stdin.isatty()):
        return True, "the default"
    prompt = Text.assemble((question, "bold"), f" [Y/n] (yes after {ANSWER_TIMEOUT:.0f} s) ")
    console.print(prompt, end="")
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            line = await _next_line()
    except TimeoutError:
        console.print()
        return True, "the default"
    return not line.strip().lower().startswith("n"), "your answer"


async def _next_line() -> str:
    loop, stdin = asyncio.get_running_loop(), sys.stdin
    ready: asyncio.Future[str] = loop.create_future()
    loop.add_reader(stdin, lambda: ready.done() or ready.set_result(stdin.readline()))
    try:
        return await ready
    finally:
        loop.remove_reader(stdin)


async def run(console: Console, folder: Path, show: DisplayMode) -> DemoResult:
    """Run the demo. The store stays in the folder."""
    screen, server = DemoScreen(console, show), DemoServer(folder)
    await _run_scenario(screen, server)
    tasks = {row.name: row.task_id for row in screen.rows}
    async with open_store(folder / "tasks.db") as store:
        task_id = TaskId(next(iter(tasks.values())))
        history = await store.history(task_id, Scope.for_namespace("demo"), now=SystemClock().now())
    return DemoResult({row.name: row.result for row in screen.rows}, tasks, server.printed_twice, history)


async def _run_scenario(screen: DemoScreen, server: DemoServer) -> None:
    screen.print_event("a server starts, on one SQLite file; its tool prints a book, chapter by chapter")
    await server.start()
    screen.rows = [CallerRow(name, protocol, total=CHAPTERS) for name, protocol in CALLERS.items()]
    screen.start()
    try:
        async with asyncio.TaskGroup() as callers:
            ask = partial(_answer_question, screen)
            for row in screen.rows:
                callers.create_task(_call(screen, row, server.url, ask))
            await screen.wait_until(
                lambda: screen.rows[0].done >= CHAPTERS_BEFORE_KILL and all(row.task_id for row in screen.rows)
            )
            await _crash(screen, server)
        screen.finish()
    finally:
        screen.pause()
        await server.kill()


async def _crash(screen: DemoScreen, server: DemoServer) -> None:
    await server.kill()
    screen.print_event("the server is killed while it works (SIGKILL)", BAD)
    for row in screen.rows:
        screen.update(row, status="server gone")
    screen.snapshot()
    await asyncio.sleep(DOWNTIME)
    await server.start()
    screen.print_event("a new server starts on the same file: unfinished tasks resume where they were", GOOD)


async def _call(screen: DemoScreen, row: CallerRow, url: str, ask: ElicitationFnT) -> None:
    arguments: dict[str, Any] = {"title": title_of(row.name), "chapters": CHAPTERS}
    if row.protocol == FALLBACK:
        result = await _call_without_tasks(screen, row, url, arguments)
    elif row.protocol == V2025:
        result = await _call_with_tasks(screen, row, url, arguments, "legacy", None)
    else:
        result = await _call_with_tasks(screen, row, url, {**arguments, "special": True}, "auto", ask)
    if result.is_error:
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        raise MCPError(-32_000, " ".join(texts))
    row.result = cast("Mapping[str, Any]", result.structured_content)


async def _call_with_tasks(
    screen: DemoScreen, row: CallerRow, url: str, arguments: Mapping[str, Any], mode: str, ask: ElicitationFnT | None
) -> CallToolResult:
    """Call as a host with tasks: receive a task, and follow it."""
    async with TaskClient(url, mode=mode, elicitation_callback=ask) as client:
        handle = await client.call(TOOL, arguments)
        row.task_id = handle.task_id or ""
        screen.print_event(f"{row.name} receives a task at once: {row.task_id[:12]}…")
        async for update in handle:
            done = row.total if update.is_ended else update.progress.done if update.progress else None
            screen.update(row, status=update.status, message=update.message or "", done=done)
        return await handle.result()


async def _call_without_tasks(
    screen: DemoScreen, row: CallerRow, url: str, arguments: Mapping[str, Any]
) -> CallToolResult:
    """Call as a host without tasks: its model reads the answer, and sends the next call."""
    connection = ServerConnection(url, lambda: Client(url, mode="legacy"), reconnect_timeout=30.0, clock=SystemClock())
    await connection.open()
    try:
        screen.update(row, status="waits", message="an ordinary call, which stays open")
        result = await (await connection.client()).call_tool(TOOL, dict(arguments))
        while (task := _live_task(result)) is not None:
            row.task_id, next_call = task["task_id"], task["next"]
            tool, call = next_call["tool"], next_call["arguments"]
            screen.print_event(f"{row.name} receives a text about the task: its model calls {tool}")
            screen.update(row, status=task["status"], message=f"its model calls {tool}", done=task.get("progress"))
            send = partial(Client.call_tool, name=tool, arguments=call)
            result = await connection.request(send, response_timeout=None)
        screen.update(row, status="completed", message="", done=row.total)
        return result
    finally:
        await connection.close()


def _live_task(result: CallToolResult) -> Mapping[str, Any] | None:
    """Return the answer's data about a task that has not ended; None if it has."""
    task = as_object(cast("Json", result.structured_content))
    return task if "task_id" in task and "next" in task else None


async def _answer_question(
    screen: DemoScreen, context: ClientRequestContext, params: ElicitRequestParams
) -> ElicitResult:
    del context
    screen.pause()
    try:
        is_yes, source = await _ask_person(screen.console, params.message)
    finally:
        screen.start()
    screen.print_event(f"the task asks: {params.message} {'Yes' if is_yes else 'No'} ({source})", "cyan")
    return ElicitResult(action="accept", content={"leather": is_yes})


OK = ("  ok  ", GOOD)


def print_summary(console: Console, outcome: DemoResult) -> None:
    """Print each caller's result, and the first task's history."""
    console.print()
    for name, result in outcome.results.items():
        console.print(Text.assemble(OK, f"{name} has {json.dumps(result)}"), soft_wrap=True)
    twice = outcome.printed_twice
    note = (
        "no chapter was printed twice" if not twice else f"chapters that were interrupted, and printed again: {twice}"
    )
    console.print(Text.assemble(OK, note))
    first = next(iter(outcome.tasks))
    console.print(Text(f"\nThe history of {first}'s task, from the store:", "bold"))
    table = Table(box=None, padding=(0, 2), show_header=False)
    for event, entries in groupby(outcome.history, key=lambda entry: entry.event):
        first_entry, *later_entries = entries
        elapsed = f"+{(first_entry.at - outcome.history[0].at).total_seconds():.1f} s"
        first_note = first_entry.note or ""
        note = f"{first_note} … {later_entries[-1].note}" if later_entries else first_note
        table.add_row(Text(elapsed, QUIET), str(event), str(first_entry.after), Text(note, QUIET))
    console.print(table)
    if not outcome.is_correct:
        console.print(Text("A caller did not get the right result: see above.", BAD))


def history_entry_to_json(entry: HistoryEntry) -> dict[str, str | int | None]:
    return {"at": entry.at.isoformat(), "event": str(entry.event), "phase": str(entry.after), "attempt": entry.attempt}


EPILOG = """
Examples:

\b
  raincheck demo
  raincheck demo --json

It takes about fifteen seconds, and needs no network. Exit codes: 0 success; 1 a caller did not get the right result;
130 you stopped it with Ctrl-C.
"""


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print only the results, as JSON.")] = False,
) -> None:
    """Run a demo: three callers, and a server that is killed.

    The callers call the same tool, with different protocols.
    """
    # The display reports broken connections instead of the SDK's log.
    silence_library_logs()
    console = Console(quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="raincheck-demo-") as folder:
        outcome = run_with_signals(run(console, Path(folder), "live" if console.is_terminal else "lines"))
    if as_json:
        facts = {"results": outcome.results, "tasks": outcome.tasks, "printed_twice": outcome.printed_twice}
        typer.echo(
            json.dumps(
                {**facts, "right": outcome.is_correct, "history": list(map(history_entry_to_json, outcome.history))}
            )
        )
    else:
        print_summary(console, outcome)
    raise typer.Exit(0 if outcome.is_correct else 1)
