"""A shop whose one tool takes as long as it is told to, by a clock that goes when told."""

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
from tests.support.server.caller_v2025 import G1Caller
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import Shop
from tests.support.server.fallback.clock import LEASED, WatchedClock
from tests.support.server.fallback.hosts import first_done
from tests.support.server.transports import Message

QUICK, SLOW = 0.1, 100.0


class Workshop:
    """Runs calls of its tool, and sees what they are answered with."""

    def __init__(
        self,
        store: str | PathLike[str] = "memory:",
        clock: WatchedClock | None = None,
        options: dict[str, Any] | None = None,
        **tool: Any,
    ) -> None:
        self.clock = clock or WatchedClock()
        self.shop = Shop(store, clock=self.clock, **{"settings": LEASED, **(options or {})})
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        """The task of each call that has begun."""
        clock = self.clock

        @self.shop.tasks.tool(retry_on=(), **tool)
        async def take(seconds: float, task: TaskContext, end: str = "well") -> str:
            sleeping = clock.sleep(seconds)
            self.begun.put_nowait(task.id)
            await sleeping
            match end:
                case "reported":
                    raise ToolError("it went wrong")
                case "refused":
                    raise MCPError(-32042, "go there first")
                case "crashed":
                    raise ValueError("nobody thought of this")
                case _:
                    return end

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Caller]:
        """A caller of a server that runs."""
        async with self.shop.open() as caller:
            await caller.request("server/discover")
            yield caller

    async def explained(self) -> ToolExplanation:
        """What the server does with calls now."""
        (tool,) = (await self.shop.tasks.explain()).tools
        return tool

    async def measured(self, caller: Caller, at_least: int) -> int:
        """How many calls count, as soon as enough do: a caller may see the end of a task before it is counted."""
        while (measured := (await self.explained()).measured) < at_least:
            await caller.request("server/discover")
        return measured

    async def window(self) -> float:
        """How long a call waits for its end now, of a caller that takes tasks."""
        waits = (await self.explained()).with_tasks.waits_seconds
        assert waits is not None
        return waits

    async def begin(self, caller: Caller | G1Caller, seconds: float, **arguments: Any) -> "asyncio.Task[Message]":
        """A call that will take so long. It is under way when this returns, and so is its wait for the end."""
        window = await self.window()
        more: dict[str, Any] = {"task": {}} if isinstance(caller, G1Caller) else {}
        calling = asyncio.create_task(caller.call("take", {"seconds": seconds, **arguments}, **more))
        await self.begun.get()
        if window and not more:
            await first_done(calling, self.clock.asleep(window))
        return calling

    async def run(self, caller: Caller, seconds: float, **arguments: Any) -> Message:
        """What a call is answered with that takes so long. It has ended when this returns."""
        window = await self.window()
        calling = await self.begin(caller, seconds, **arguments)
        self.clock.advance(min(window, seconds))
        answer = await calling
        if answer["resultType"] == "task":
            # A little longer, since what is added up may be a little short.
            self.clock.advance(max(seconds - window, 0.0) + 0.001)
            await caller.until(answer["taskId"])
        return answer

    async def learn(self, caller: Caller, seconds: float, calls: int = MIN_SAMPLES) -> list[str]:
        """Run so many that take so long, and say how each was answered: with its result, or with its task."""
        return [(await self.run(caller, seconds))["resultType"] for _ in range(calls)]
