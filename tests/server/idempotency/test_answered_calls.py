"""Calls whose users were asked before the task are not joined, because only the answers may distinguish them."""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import Elicit, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import NO_TASKS, text_of
from tests.support.server.transports import Message

pytestmark = pytest.mark.anyio

BY_CALLERS = pytest.mark.parametrize("capabilities", [None, NO_TASKS], ids=["with tasks", "without"])

SEVEN = {"version": 7}


class Where(BaseModel):
    place: str


async def ask_where() -> Elicit[Where]:
    return Elicit("Deploy where?", Where)


class Deploying:
    """A server with an idempotent tool that asks for a place first, and then waits to be opened."""

    def __init__(self) -> None:
        self.server = ExampleServer()
        self.runs: list[str] = []
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.go = asyncio.Event()

        @self.server.tasks.tool(annotations=ToolAnnotations(idempotent_hint=True), inline_for=0)
        async def deploy(version: int, where: Annotated[Where, Resolve(ask_where)]) -> str:
            self.runs.append(where.place)
            self.started.put_nowait(where.place)
            await self.go.wait()
            return f"deployed {version} to {where.place}"

    async def call(self, caller: Caller, place: str) -> Message:
        """Call, and answer where."""
        asked = await caller.call("deploy", SEVEN)
        reply = {"action": "accept", "content": {"place": place}}
        answers = dict.fromkeys(asked["inputRequests"], reply)
        answer = await caller.call("deploy", SEVEN, inputResponses=answers, requestState=asked["requestState"])
        return await caller.result(answer["taskId"]) if answer.get("resultType") == "task" else answer


@BY_CALLERS
async def test_calls_that_were_answered_differently_are_two_calls_though_their_arguments_are_the_same(
    capabilities: dict[str, Any] | None,
) -> None:
    deploying = Deploying()
    async with deploying.server.open(capabilities=capabilities) as caller:
        calls: list[asyncio.Task[Message]] = []
        for place in ("staging", "production"):
            calls.append(asyncio.create_task(deploying.call(caller, place)))
            assert await asyncio.wait_for(deploying.started.get(), 20) == place
        deploying.go.set()
        texts = [text_of(await call) for call in calls]
        assert texts == ["deployed 7 to staging", "deployed 7 to production"]
    assert deploying.runs == ["staging", "production"]
