"""Tools and requests that many tests of 2025-11-25 use."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from raincheck import TaskContext
from raincheck.core.records import Task, View
from tests.support.server.caller_v2025 import V2025Caller
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import owner_for

ON_V2025_TRANSPORTS = pytest.mark.parametrize("way", ["memory", "http"])
ON_ALL_V2025_TRANSPORTS = pytest.mark.parametrize(
    "way", ["memory", "http", "http-events", "http-json", "http-stateless", "http-stateless-json"]
)

ALICE = {"authorization": "Bearer alice"}
BOB = {"authorization": "Bearer bob"}
"""Headers of two unverified callers that are different owners."""


class Meter:
    """A tool that reports the progress that its test sets."""

    def __init__(self, server: ExampleServer) -> None:
        self._shop = server
        self._reports: asyncio.Queue[tuple[asyncio.Event, Mapping[str, Any]] | None] = asyncio.Queue()

    async def show(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, and return when it is stored."""
        is_stored = asyncio.Event()
        self._reports.put_nowait((is_stored, {"done": done, "total": total, "message": message}))
        await is_stored.wait()

    def finish(self) -> None:
        """Let the tool return."""
        self._reports.put_nowait(None)

    async def run(self, task: TaskContext) -> None:
        while (report := await self._reports.get()) is not None:
            is_stored, progress = report
            await task.progress(**progress)
            is_there = partial(_has_come_to, progress["done"])
            await self._shop.tasks.engine.wait(task.id, owner=task.owner, until=is_there)
            is_stored.set()


def _has_come_to(done: float, task: Task) -> bool:
    return task.progress is not None and task.progress.done >= done


def add_metered(server: ExampleServer, name: str = "metered", **settings: Any) -> Meter:
    """Add a tool that reports the progress that its meter sets, and returns `measured`."""
    meter = Meter(server)

    @server.tasks.tool(name=name, **settings)
    async def metered(task: TaskContext) -> str:
        await meter.run(task)
        return "measured"

    return meter


def add_echo(server: ExampleServer, name: str = "say", **settings: Any) -> None:
    """Add a tool that returns its argument."""

    @server.tasks.tool(name=name, **settings)
    async def say(words: str = "") -> str:
        return words


async def refusal(caller: V2025Caller, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> Refused:
    """The error that answers a request."""
    with pytest.raises(Refused) as refused:
        await caller.request(method, params, **more)
    return refused.value


async def refused_call(
    caller: V2025Caller, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any
) -> Refused:
    """The error that answers a call as a task."""
    meta = more.pop("meta", None)
    params = {"name": tool, "arguments": dict(arguments or {}), "task": {}, **more}
    return await refusal(caller, "tools/call", params, meta=meta)


async def ended(server: ExampleServer, task_id: str, way: str = "memory") -> View:
    """Wait in the engine for the end of a task."""
    return await server.tasks.engine.wait(task_id, owner=owner_for("open" if way == "memory" else way))


async def until(is_so: Callable[[], bool], caller: V2025Caller) -> None:
    """Let the server run until a condition holds."""
    while not is_so():
        await caller.ping()


async def count_tasks(server: ExampleServer) -> int:
    """The number of tasks of local callers."""
    return len((await server.tasks.engine.list_tasks()).tasks)
