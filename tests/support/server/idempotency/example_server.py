"""A server with idempotent tools, and hosts of every kind that call them, give up, and call again."""

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
from tests.support.server.caller_v2025 import Call, V2025Caller, connected
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.tools import NO_TASKS, text_of
from tests.support.server.transports import HttpTransport, Message, in_memory
from tests.support.server.transports_v2025 import v2025_http, v2025_memory, v2025_serving
from tests.support.watched_clock import WatchedClock

SAME = ToolAnnotations(idempotent_hint=True)

ALICE = {"authorization": "Bearer alice"}
BOB = {"authorization": "Bearer bob"}

FALLBACK_TIERS = ["fallback 2025-06-18", "fallback 2025-11-25", "fallback 2026-07-28"]
WITH_TASKS = ["v2025", "v2026"]
MODERN = ["fallback 2026-07-28", "v2026"]
TIERS = [*FALLBACK_TIERS, *WITH_TASKS]
BY_FALLBACK_TIERS = pytest.mark.parametrize("tier", FALLBACK_TIERS)
BY_TIERS_WITH_TASKS = pytest.mark.parametrize("tier", WITH_TASKS)
BY_TIERS = pytest.mark.parametrize("tier", TIERS)
OVER_TRANSPORTS = pytest.mark.parametrize("way", ["memory", "http"])


class PrintServer:
    """A server that prints pages. Each result names the run that printed the page."""

    def __init__(self, store: str | PathLike[str] = "memory:", **options: Any) -> None:
        self.clock: WatchedClock = options.pop("clock", None) or WatchedClock()
        tool: dict[str, Any] = {"annotations": SAME, **options.pop("tool", {})}
        self.server = ExampleServer(store, clock=self.clock, settings=options.pop("settings", LONG_LEASE), **options)
        self.runs: list[tuple[str, dict[str, Any]]] = []
        """The task and the arguments of each."""
        self.started = asyncio.Event()
        self.open = asyncio.Event()
        self.stopped = asyncio.Event()

        @self.server.tasks.tool(**tool)
        async def print_page(task: TaskContext, page: Any = None, how: Any = None) -> str:
            self.runs.append((task.id, {"page": page, "how": how}))
            run = len(self.runs)
            self.started.set()
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.stopped.set()
                raise
            if page == "torn":
                raise ToolError("it is torn")
            return f"run {run}"

        @self.server.tasks.tool(**tool)
        async def print_cover(task: TaskContext, page: Any = None) -> str:
            self.runs.append((task.id, {"page": page}))
            await self.open.wait()
            return f"run {len(self.runs)}"

    async def ended(self, run: int = 0) -> View:
        """Return the ended task, as its owner sees it."""
        return await self.server.tasks.engine.wait(self.runs[run][0], owner=await self.owner_of(run))

    async def owner_of(self, run: int = 0) -> Owner:
        engine = self.server.tasks.engine
        store: Any = getattr(engine, "_deps").store  # noqa: B009 - to read without an owner
        task: Task = await store.load(self.runs[run][0], Scope.everything(), now=self.clock.now())
        return task.owner

    async def print_unseen(self, host: "Host", arguments: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Print a page whose host gives up: the call completes, and its result is not retrieved."""
        self.open.clear()
        self.started.clear()
        call = await host.begin(arguments, **more)
        await self.started.wait()
        await host.leave(call)
        self.open.set()
        await self.ended(-1)


RunningCall: TypeAlias = "asyncio.Task[Message] | Call"


class Host:
    """A host of one tier. A host with tasks gets its task id at once, and one without tasks has to wait."""

    def __init__(self, caller: Caller | V2025Caller, tier: str) -> None:
        self.caller = caller
        self.tier = tier

    async def begin(
        self, arguments: Mapping[str, Any] | None = None, *, tool: str = "print_page", meta: Message | None = None
    ) -> RunningCall:
        """Start a call. The server has received it when this returns, as far as a client can know."""
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments or {})}
        if isinstance(self.caller, V2025Caller):
            if self.tier == "v2025":
                params["task"] = {}
            call = await self.caller.begin("tools/call", params, meta=meta)
            await self.caller.transport.reach(call.id)
            await self.flush()
            return call
        request = asyncio.create_task(self.caller.request("tools/call", params, meta=meta))
        await self.flush()
        return request

    async def leave(self, call: RunningCall) -> None:
        """Give up on a call. A host with tasks has been answered by then, and forgets the task."""
        if self.tier in WITH_TASKS:
            await self.answer(call)
        elif isinstance(call, Call):
            assert isinstance(self.caller, V2025Caller)
            await self.caller.give_up(call)
        else:
            call.cancel()
            await asyncio.wait([call])
        await self.flush()

    async def flush(self) -> None:
        """Make another request and wait for its answer."""
        await self.caller.request("tools/list")

    async def answer(self, call: RunningCall) -> Message:
        return await (call.result() if isinstance(call, Call) else call)

    async def handle(self, call: RunningCall) -> str:
        """Return the id of the task that a host with tasks received."""
        answer = await self.answer(call)
        return answer["task"]["taskId"] if self.tier == "v2025" else answer["taskId"]

    async def result(self, call: RunningCall) -> Message:
        """Return the final result of a call."""
        answer = await self.answer(call)
        if "task" in answer or answer.get("resultType") == "task":
            return await self.caller.result(await self.handle(call))
        return answer

    async def call(self, arguments: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Make a call and return the text of its result."""
        return text_of(await self.result(await self.begin(arguments, **more)))


class Site:
    """A print server that hosts connect to."""

    def __init__(self, print_server: PrintServer, http: HttpTransport | None) -> None:
        self.print_server = print_server
        self.http = http

    @asynccontextmanager
    async def host(self, tier: str, headers: Mapping[str, str] = ALICE) -> AsyncGenerator[Host]:
        """Yield a host on a separate connection. Over HTTP, its headers identify it."""
        capabilities = None if tier == "v2026" else NO_TASKS
        if tier in MODERN and self.http is not None:
            yield Host(Caller(self.http, capabilities=capabilities, headers=headers), tier)
        elif tier in MODERN:
            async with in_memory(self.print_server.server.mcp) as transport:
                yield Host(Caller(transport, capabilities=capabilities), tier)
        else:
            version = "2025-06-18" if "2025-06-18" in tier else "2025-11-25"
            opening = (
                v2025_memory(self.print_server.server.mcp) if self.http is None else v2025_http(self.http, **headers)
            )
            async with opening as transport, connected(transport, version=version) as caller:
                yield Host(caller, tier)


@asynccontextmanager
async def served(print_server: PrintServer, way: str = "memory") -> AsyncGenerator[Site]:
    if way == "memory":
        yield Site(print_server, None)
        return
    async with v2025_serving(print_server.server.mcp, way) as http:
        yield Site(print_server, http)


@asynccontextmanager
async def connected_host(
    print_server: PrintServer, tier: str, way: str = "memory", **options: Any
) -> AsyncGenerator[Host]:
    """Yield one host of a print server."""
    async with served(print_server, way) as site, site.host(tier, **options) as host:
        yield host
