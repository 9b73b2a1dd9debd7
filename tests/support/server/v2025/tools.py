"""Tools that tests of 2025-11-25 need again and again, and what is asked about them."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from raincheck import TaskContext
from raincheck.core.records import Task, View
from tests.support.server.caller_v2025 import G1Caller
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import Shop
from tests.support.server.tools import owner_over

ON_G1_WIRES = pytest.mark.parametrize("way", ["memory", "http"])
ON_ALL_G1_WIRES = pytest.mark.parametrize(
    "way", ["memory", "http", "http-events", "http-json", "http-stateless", "http-stateless-json"]
)

ALICE = {"authorization": "Bearer alice"}
BOB = {"authorization": "Bearer bob"}
"""Headers of two callers whom nobody verifies, and who are told apart all the same."""


class Meter:
    """A tool that reports what it is told to."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._told: asyncio.Queue[tuple[asyncio.Event, Mapping[str, Any]] | None] = asyncio.Queue()

    async def show(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Have progress reported. It is kept when this returns."""
        is_kept = asyncio.Event()
        self._told.put_nowait((is_kept, {"done": done, "total": total, "message": message}))
        await is_kept.wait()

    def finish(self) -> None:
        """Have the tool return."""
        self._told.put_nowait(None)

    async def run(self, task: TaskContext) -> None:
        while (told := await self._told.get()) is not None:
            is_kept, progress = told
            await task.progress(**progress)
            is_there = partial(_has_come_to, progress["done"])
            await self._shop.tasks.engine.wait(task.id, owner=task.owner, until=is_there)
            is_kept.set()


def _has_come_to(done: float, task: Task) -> bool:
    return task.progress is not None and task.progress.done >= done


def add_metered(shop: Shop, name: str = "metered", **settings: Any) -> Meter:
    """A tool that reports what it is told to, and then says `measured`."""
    meter = Meter(shop)

    @shop.tasks.tool(name=name, **settings)
    async def metered(task: TaskContext) -> str:
        await meter.run(task)
        return "measured"

    return meter


def add_saying(shop: Shop, name: str = "say", **settings: Any) -> None:
    """A tool that repeats what it is told."""

    @shop.tasks.tool(name=name, **settings)
    async def say(words: str = "") -> str:
        return words


async def refusal(caller: G1Caller, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> Refused:
    """The error that a request is answered with."""
    with pytest.raises(Refused) as refused:
        await caller.request(method, params, **more)
    return refused.value


async def refused_call(caller: G1Caller, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Refused:
    """The error that a call as a task is answered with."""
    meta = more.pop("meta", None)
    params = {"name": tool, "arguments": dict(arguments or {}), "task": {}, **more}
    return await refusal(caller, "tools/call", params, meta=meta)


async def ended(shop: Shop, task_id: str, way: str = "memory") -> View:
    """The task when it has ended, not by what its caller is told."""
    return await shop.tasks.engine.wait(task_id, owner=owner_over("open" if way == "memory" else way))


async def until(is_so: Callable[[], bool], caller: G1Caller) -> None:
    """Let the server do what it does, until something is so."""
    for _ in range(2_000):
        if is_so():
            return
        await caller.ping()
    pytest.fail("it never was")


async def count_tasks(shop: Shop) -> int:
    """How many tasks callers on this machine have."""
    return len((await shop.tasks.engine.list_tasks()).tasks)
