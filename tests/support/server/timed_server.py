"""A server whose one tool takes as long as its argument says, by a fake clock."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any

from mcp.shared.exceptions import MCPError

from raincheck import TaskContext
from raincheck.errors import ToolError
from raincheck.server.explain import ToolExplanation
from raincheck.server.wait_policy import MIN_SAMPLES
from tests.support.server.caller_v2025 import V2025Caller
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.fallback.hosts import wait_for_first
from tests.support.server.transports import Message
from tests.support.watched_clock import WatchedClock

QUICK, SLOW = 0.1, 100.0


class TimedServer:
    """A server with one tool, and a clock that only tests advance."""

    def __init__(
        self,
        store: str | PathLike[str] = "memory:",
        clock: WatchedClock | None = None,
        options: dict[str, Any] | None = None,
        **tool: Any,
    ) -> None:
        self.clock = clock or WatchedClock()
        self.server = ExampleServer(store, clock=self.clock, **{"settings": LONG_LEASE, **(options or {})})
        self.started: asyncio.Queue[str] = asyncio.Queue()
        """The task of each call that has started."""
        clock = self.clock

        @self.server.tasks.tool(retry_on=(), **tool)
        async def take(seconds: float, task: TaskContext, end: str = "well") -> str:
            sleeping = clock.sleep(seconds)
            self.started.put_nowait(task.id)
            await sleeping
            match end:
                case "reported":
                    raise ToolError("it went wrong")
                case "refused":
                    raise MCPError(-32042, "go there first")
                case "crashed":
                    raise ValueError("an unexpected error")
                case _:
                    return end

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Caller]:
        """Run the server, and yield a caller."""
        async with self.server.open() as caller:
            await caller.request("server/discover")
            yield caller

    async def explained(self) -> ToolExplanation:
        """Explain what the server does with calls now."""
        (tool,) = (await self.server.tasks.explain()).tools
        return tool

    async def measured(self, caller: Caller, at_least: int) -> int:
        """Return the number of measured calls, once it is high enough. A call may be counted after its end is seen."""
        while (measured := (await self.explained()).measured) < at_least:
            await caller.request("server/discover")
        return measured

    async def window(self) -> float:
        """Return how long a call of a caller that accepts tasks waits for its end now."""
        waits = (await self.explained()).with_tasks.waits_seconds
        assert waits is not None
        return waits

    async def begin(self, caller: Caller | V2025Caller, seconds: float, **arguments: Any) -> "asyncio.Task[Message]":
        """Start a call that takes this long. It runs, and its caller waits, when this returns."""
        window = await self.window()
        more: dict[str, Any] = {"task": {}} if isinstance(caller, V2025Caller) else {}
        calling = asyncio.create_task(caller.call("take", {"seconds": seconds, **arguments}, **more))
        await self.started.get()
        if window and not more:
            await wait_for_first(calling, self.clock.asleep(window))
        return calling

    async def run(self, caller: Caller, seconds: float, **arguments: Any) -> Message:
        """Return the answer to a call that takes this long. The call has ended when this returns."""
        window = await self.window()
        calling = await self.begin(caller, seconds, **arguments)
        self.clock.advance(min(window, seconds))
        answer = await calling
        if answer["resultType"] == "task":
            # A little longer, because the sum of the floats may be a little short.
            self.clock.advance(max(seconds - window, 0.0) + 0.001)
            await caller.until(answer["taskId"])
        return answer

    async def learn(self, caller: Caller, seconds: float, calls: int = MIN_SAMPLES) -> list[str]:
        """Run calls that take this long, and return the type of each answer: a result or a task."""
        return [(await self.run(caller, seconds))["resultType"] for _ in range(calls)]
