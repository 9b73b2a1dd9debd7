"""How the demo goes: everybody calls, the server is killed, and everybody gets what they called for."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.client.session import ClientRequestContext, ElicitationFnT
from mcp_types import ElicitRequestParams, ElicitResult

from raincheck.cli.demo.board import BAD, GOOD, Board, Line
from raincheck.cli.demo.callers import call_with_tasks, call_without
from raincheck.cli.demo.person import Person
from raincheck.cli.demo.stage import Stage

CHAPTERS = 12
KILLED_AT = 3
"""Chapters that the first caller has, at least, when the server is killed."""

DOWN_FOR = 1.0
"""Seconds for which there is no server."""

NEWER, OLDER, WITHOUT = "tasks of 2026-07-28", "tasks of 2025-11-25", "no tasks"
CALLERS = {"anna": NEWER, "ben": OLDER, "cleo": WITHOUT}


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of it, by the callers' names."""

    results: Mapping[str, Mapping[str, Any]]
    tasks: Mapping[str, str]
    printed_twice: int
    """Chapters that were cut off half-way, and done again."""

    @property
    def is_right(self) -> bool:
        pages = sum(10 * chapter for chapter in range(1, CHAPTERS + 1))
        return self.results.keys() == CALLERS.keys() and all(
            result.get("title") == title_of(name) and result.get("pages") == pages
            for name, result in self.results.items()
        )


def title_of(name: str) -> str:
    return f"The book of {name}"


async def play(board: Board, folder: Path, person: Person) -> Ending:
    """Play it all. The store is left in the folder."""
    stage = Stage(folder)
    board.tell("a server starts, on one SQLite file; its tool prints a book, chapter by chapter")
    await stage.start()
    board.lines = [Line(name, speaks, total=CHAPTERS) for name, speaks in CALLERS.items()]
    board.begin()
    try:
        async with asyncio.TaskGroup() as callers:
            ask = _asking(board, person)
            jobs = {line.name: callers.create_task(_call(board, line, stage.url, ask)) for line in board.lines}
            await board.until(lambda: board.lines[0].done >= KILLED_AT and all(line.has_task for line in board.lines))
            await _crash(board, stage)
        board.end()
    finally:
        board.pause()
        await stage.kill()
    ended = {name: job.result() for name, job in jobs.items()}
    results = {name: result for name, (_, result) in ended.items()}
    return Ending(results, {name: task for name, (task, _) in ended.items()}, stage.printed_twice)


async def _crash(board: Board, stage: Stage) -> None:
    await stage.kill()
    board.tell("the server is killed in the middle of it (SIGKILL)", BAD)
    for line in board.lines:
        board.see(line, status="server gone")
    board.snapshot()
    await asyncio.sleep(DOWN_FOR)
    await stage.start()
    board.tell("another one starts on the same file: what was unfinished goes on where it was", GOOD)


async def _call(board: Board, line: Line, url: str, ask: ElicitationFnT) -> tuple[str, Mapping[str, Any]]:
    arguments: dict[str, Any] = {"title": title_of(line.name), "chapters": CHAPTERS}
    if line.speaks == WITHOUT:
        return await call_without(board, line, url, arguments)
    if line.speaks == OLDER:
        return await call_with_tasks(board, line, url, arguments, "legacy", None)
    return await call_with_tasks(board, line, url, {**arguments, "special": True}, "auto", ask)


def _asking(board: Board, person: Person) -> ElicitationFnT:
    async def ask(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        board.pause()
        try:
            is_yes, by = await person.ask(params.message)
        finally:
            board.begin()
        board.tell(f"the task asks: {params.message} {'Yes' if is_yes else 'No'}, {by}", "cyan")
        return ElicitResult(action="accept", content={"leather": is_yes})

    return ask
