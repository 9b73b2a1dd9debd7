"""Clients of the example server, for every protocol and transport."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from raincheck.client import Handle, TaskClient, Update
from tests.support.client.example_server import ExampleServer
from tests.support.client.transports import hide_tasks, in_memory, without_tasks
from tests.support.http_server import running_app

TIERS = ["2026", "2025", "plain", "hidden"]
"""The negotiated protocols. In the last one, the transport hides the server's task capabilities."""

ON_ALL_PROTOCOLS = pytest.mark.parametrize("tier", TIERS)
ON_TASK_PROTOCOLS = pytest.mark.parametrize("tier", ["2026", "2025"])
ON_ALL_TRANSPORTS = pytest.mark.parametrize("way", ["memory", "http"])

YES = {"action": "accept", "content": {"sure": True}}


class User:
    """Answers questions, and records them."""

    def __init__(self, thinks_about: str = "") -> None:
        self.thinks_about = thinks_about
        self.asked: list[str] = []
        self.left_when: list[int] = []
        """The number of questions so far, each time that a callback was cancelled."""
        self.is_asked = asyncio.Event()
        self.decides = asyncio.Event()

    async def answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        self.asked.append(params.message)
        self.is_asked.set()
        try:
            if params.message == self.thinks_about:
                await self.decides.wait()
        except asyncio.CancelledError:
            self.left_when.append(len(self.asked))
            raise
        return ElicitResult(action="accept", content={"sure": True})


def client_options(tier: str, server: Any, url: str | None) -> dict[str, Any]:
    """Return the client's options for a protocol."""
    if tier == "2026":
        return {"server": url or server}
    if tier == "2025":
        return {"server": url or server, "mode": "legacy"}
    wrap = {"plain": without_tasks, "hidden": hide_tasks}[tier]
    if url is None:
        return {"server": lambda: wrap(in_memory(server)), "mode": "legacy", "name": "calls"}
    return {"server": lambda: wrap(streamable_http_client(url)), "mode": "legacy", "name": url}


@asynccontextmanager
async def open_client(
    server: ExampleServer, tier: str = "2026", way: str = "memory", **more: Any
) -> AsyncGenerator[TaskClient]:
    """A client of a server in this process."""
    if way == "memory":
        async with TaskClient(**client_options(tier, server.mcp, None), **more) as client:
            yield client
        return
    async with (
        running_app(server.mcp.streamable_http_app()) as url,
        TaskClient(**client_options(tier, server.mcp, url), **more) as client,
    ):
        yield client


async def start_task(client: TaskClient, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Handle:
    """Call a tool that becomes a task."""
    handle = await client.call(tool, arguments, **more)
    assert handle.task_id is not None
    return handle


async def updates_of(handle: Handle) -> list[Update]:
    return [update async for update in handle]


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert block.type == "text"
    return block.text
