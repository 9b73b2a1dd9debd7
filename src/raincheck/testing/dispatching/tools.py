"""The tools that the suite's workers have. They tell whatever they do, so that a test can wait for it and count it."""

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from raincheck.core.payload import Json
from raincheck.core.retry import RetryPolicy
from raincheck.engine import TaskContext, Toolbox

Tell: TypeAlias = Callable[..., None]

STEPS = ("load", "clean", "publish")
STUBBORN = RetryPolicy(attempts=50, first=timedelta(0), most=timedelta(0), jitter=0)

KINDS = ("all", "older", "newer", "other")
"""What a worker may have: everything but what has versions; that in its first or second version; none of it."""


class Diary:
    """A file to which many processes write, a line at a time, and what else is to hear of a line."""

    def __init__(self, path: str | os.PathLike[str], also: Callable[[str], None] | None = None) -> None:
        # Opened once, by whoever makes it, so that nothing is opened in an event loop. Each write is appended whole.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._also = also

    def __call__(self, *words: object) -> None:
        line = " ".join(map(str, words)) + "\n"
        os.write(self._file, line.encode())
        if self._also is not None:
            self._also(line)

    def close(self) -> None:
        os.close(self._file)


def make_toolbox(kind: str, tell: Tell, gate: asyncio.Event) -> Toolbox:
    """The tools of a worker of a kind. What is told to wait does so until the gate is open."""
    toolbox = Toolbox()
    if kind == "all":
        _add_work(toolbox, tell, gate)
        _add_waits(toolbox, tell)
    if kind in ("older", "newer"):
        _add_versioned(toolbox, tell, "1" if kind == "older" else "2")
    if kind == "other":
        _add_other(toolbox, tell)
    return toolbox


def _add_work(toolbox: Toolbox, tell: Tell, gate: asyncio.Event) -> None:
    @toolbox.tool(retry=STUBBORN)
    async def three_steps(task: TaskContext, hangs_in: str = "", ms: int = 0) -> list[Json]:
        """Three steps. The first attempt stays in one of them, until the gate is open."""

        async def do(name: str) -> str:
            tell("step", task.id, name, task.attempt)
            if name == hangs_in and task.attempt == 1:
                await gate.wait()
            await asyncio.sleep(ms / 1_000)
            return f"{name} by {task.attempt}"

        try:
            done: list[Json] = [await task.step(name, do, name) for name in STEPS]
            tell("returns", task.id, task.attempt)
            return done
        finally:
            tell("left", task.id, task.attempt)

    @toolbox.tool
    async def plain(task: TaskContext) -> int:
        tell("ran", task.id, task.attempt)
        return task.attempt


def _add_waits(toolbox: Toolbox, tell: Tell) -> None:
    @toolbox.tool
    async def wait_for_ever(task: TaskContext) -> None:
        tell("began", task.id, task.attempt)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            tell("cancelled", task.id, task.attempt)
            raise

    @toolbox.tool
    async def ask(number: int, task: TaskContext) -> list[Json]:
        tell("asks", task.id, task.attempt)
        reply = await task.elicit("Go on?", {"type": "object"})
        return [number, reply.content]


def _add_versioned(toolbox: Toolbox, tell: Tell, version: str) -> None:
    @toolbox.tool(version=version)
    async def versioned(task: TaskContext) -> str:
        tell("ran", task.id, version)
        return version


def _add_other(toolbox: Toolbox, tell: Tell) -> None:
    @toolbox.tool
    async def other(task: TaskContext) -> None:
        tell("ran", task.id, task.attempt)
