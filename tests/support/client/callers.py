"""Callers of the server, of every kind and over every way."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from raincheck.client import Handle, TaskClient, Update
from tests.support.client.example_server import Server
from tests.support.client.transports import hidden, in_memory, plain
from tests.support.http_server import served

TIERS = ["2026", "2025", "plain", "hidden"]
"""What the caller and the server agree on. In the last one, somebody hides that there are tasks."""

ON_ALL = pytest.mark.parametrize("tier", TIERS)
ON_BOTH = pytest.mark.parametrize("tier", ["2026", "2025"])
BY_ALL_WAYS = pytest.mark.parametrize("way", ["memory", "http"])

YES = {"action": "accept", "content": {"sure": True}}


class User:
    """Answers what is asked, and remembers it."""

    def __init__(self, thinks_about: str = "") -> None:
        self.thinks_about = thinks_about
        self.asked: list[str] = []
        self.left_when: list[int] = []
        """How many questions there had been when one was taken from the user."""
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


def options_of(tier: str, server: Any, url: str | None) -> dict[str, Any]:
    """How to connect so that this comes of it."""
    if tier == "2026":
        return {"server": url or server}
    if tier == "2025":
        return {"server": url or server, "mode": "legacy"}
    wrap = {"plain": plain, "hidden": hidden}[tier]
    if url is None:
        return {"server": lambda: wrap(in_memory(server)), "mode": "legacy", "name": "calls"}
    return {"server": lambda: wrap(streamable_http_client(url)), "mode": "legacy", "name": url}


@asynccontextmanager
async def calling(server: Server, tier: str = "2026", way: str = "memory", **more: Any) -> AsyncGenerator[TaskClient]:
    """A client of a server in this process."""
    if way == "memory":
        async with TaskClient(**options_of(tier, server.mcp, None), **more) as client:
            yield client
        return
    async with (
        served(server.mcp.streamable_http_app()) as url,
        TaskClient(**options_of(tier, server.mcp, url), **more) as client,
    ):
        yield client


async def begin(client: TaskClient, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Handle:
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
