"""A shop with work that may be done twice, and hosts of every tier that call for it, give up, and call again."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any, TypeAlias

import pytest
from mcp_types import ToolAnnotations

from raincheck import TaskContext
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import Task, View
from raincheck.errors import ToolError
from tests.support.server.caller_v2025 import Call, G1Caller, connected
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import Shop
from tests.support.server.fallback.clock import LEASED, WatchedClock
from tests.support.server.tools import NO_TASKS, text_of
from tests.support.server.transports import HttpWire, Message, in_memory
from tests.support.server.transports_v2025 import g1_http, g1_memory, g1_serving

SAME = ToolAnnotations(idempotent_hint=True)

ALICE = {"authorization": "Bearer alice"}
BOB = {"authorization": "Bearer bob"}

PLAIN = ["plain 2025-06-18", "plain 2025-11-25", "plain 2026-07-28"]
WITH_TASKS = ["g1", "g2"]
MODERN = ["plain 2026-07-28", "g2"]
TIERS = [*PLAIN, *WITH_TASKS]
BY_PLAIN_TIERS = pytest.mark.parametrize("tier", PLAIN)
BY_TIERS_WITH_TASKS = pytest.mark.parametrize("tier", WITH_TASKS)
BY_TIERS = pytest.mark.parametrize("tier", TIERS)
OVER_WIRES = pytest.mark.parametrize("way", ["memory", "http"])


class Press:
    """A shop that prints pages. It says which run printed one, so that a result tells whose it is."""

    def __init__(self, store: str | PathLike[str] = "memory:", **options: Any) -> None:
        self.clock: WatchedClock = options.pop("clock", None) or WatchedClock()
        tool: dict[str, Any] = {"annotations": SAME, **options.pop("tool", {})}
        self.shop = Shop(store, clock=self.clock, settings=options.pop("settings", LEASED), **options)
        self.runs: list[tuple[str, dict[str, Any]]] = []
        """The task and the arguments of each."""
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.stopped = asyncio.Event()

        @self.shop.tasks.tool(**tool)
        async def print_page(task: TaskContext, page: Any = None, how: Any = None) -> str:
            self.runs.append((task.id, {"page": page, "how": how}))
            run = len(self.runs)
            self.begun.set()
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.stopped.set()
                raise
            if page == "torn":
                raise ToolError("it is torn")
            return f"run {run}"

        @self.shop.tasks.tool(**tool)
        async def print_cover(task: TaskContext, page: Any = None) -> str:
            self.runs.append((task.id, {"page": page}))
            await self.open.wait()
            return f"run {len(self.runs)}"

    async def ended(self, run: int = 0) -> View:
        """Whatever its owner is told."""
        return await self.shop.tasks.engine.wait(self.runs[run][0], owner=await self.owner_of(run))

    async def owner_of(self, run: int = 0) -> Owner:
        engine = self.shop.tasks.engine
        store: Any = getattr(engine, "_deps").store  # noqa: B009 - to ask for everybody
        task: Task = await store.load(self.runs[run][0], Scope.everything(), now=self.clock.now())
        return task.owner

    async def print_unseen(self, host: "Host", arguments: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Have a page printed whose host gives up on it: it is done, and nobody has it."""
        self.open.clear()
        self.begun.clear()
        call = await host.begin(arguments, **more)
        await self.begun.wait()
        await host.leave(call)
        self.open.set()
        await self.ended(-1)


UnderWay: TypeAlias = "asyncio.Task[Message] | Call"


class Host:
    """One host, of one tier. A host with tasks has the id of its task at once, one without has to wait."""

    def __init__(self, caller: Caller | G1Caller, tier: str) -> None:
        self.caller = caller
        self.tier = tier

    async def begin(
        self, arguments: Mapping[str, Any] | None = None, *, tool: str = "print_page", meta: Message | None = None
    ) -> UnderWay:
        """Call, and go on. The server has the call when this returns, as far as one can tell."""
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments or {})}
        if isinstance(self.caller, G1Caller):
            if self.tier == "g1":
                params["task"] = {}
            call = await self.caller.begin("tools/call", params, meta=meta)
            await self.caller.wire.reach(call.id)
            await self.flush()
            return call
        job = asyncio.create_task(self.caller.request("tools/call", params, meta=meta))
        await self.flush()
        return job

    async def leave(self, call: UnderWay) -> None:
        """Give up on a call. One that is answered at once is answered: what its host knew of it is lost."""
        if self.tier in WITH_TASKS:
            await self.answer(call)
        elif isinstance(call, Call):
            assert isinstance(self.caller, G1Caller)
            await self.caller.give_up(call)
        else:
            call.cancel()
            await asyncio.wait([call])
        await self.flush()

    async def flush(self) -> None:
        """Something else is asked and answered meanwhile."""
        await self.caller.request("tools/list")

    async def answer(self, call: UnderWay) -> Message:
        return await (call.result() if isinstance(call, Call) else call)

    async def handle(self, call: UnderWay) -> str:
        """The id of the task that a host with tasks was handed."""
        answer = await self.answer(call)
        return answer["task"]["taskId"] if self.tier == "g1" else answer["taskId"]

    async def result(self, call: UnderWay) -> Message:
        """What came of the call in the end."""
        answer = await self.answer(call)
        if "task" in answer or answer.get("resultType") == "task":
            return await self.caller.result(await self.handle(call))
        return answer

    async def call(self, arguments: Mapping[str, Any] | None = None, **more: Any) -> str:
        """The text that comes of a call."""
        return text_of(await self.result(await self.begin(arguments, **more)))


class Site:
    """A press that hosts connect to."""

    def __init__(self, press: Press, http: HttpWire | None) -> None:
        self.press = press
        self.http = http

    @asynccontextmanager
    async def host(self, tier: str, headers: Mapping[str, str] = ALICE) -> AsyncGenerator[Host]:
        """A host on a connection of its own. Over HTTP, its headers say who it is."""
        capabilities = None if tier == "g2" else NO_TASKS
        if tier in MODERN and self.http is not None:
            yield Host(Caller(self.http, capabilities=capabilities, headers=headers), tier)
        elif tier in MODERN:
            async with in_memory(self.press.shop.mcp) as wire:
                yield Host(Caller(wire, capabilities=capabilities), tier)
        else:
            version = "2025-06-18" if "2025-06-18" in tier else "2025-11-25"
            opening = g1_memory(self.press.shop.mcp) if self.http is None else g1_http(self.http, **headers)
            async with opening as wire, connected(wire, version=version) as caller:
                yield Host(caller, tier)


@asynccontextmanager
async def served(press: Press, way: str = "memory") -> AsyncGenerator[Site]:
    if way == "memory":
        yield Site(press, None)
        return
    async with g1_serving(press.shop.mcp, way) as http:
        yield Site(press, http)


@asynccontextmanager
async def hosted(press: Press, tier: str, way: str = "memory", **options: Any) -> AsyncGenerator[Host]:
    """One host of a press."""
    async with served(press, way) as site, site.host(tier, **options) as host:
        yield host
