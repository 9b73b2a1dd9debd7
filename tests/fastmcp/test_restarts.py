"""A FastMCP server that is killed, for real: its tasks go on in the next one, where they had got to."""

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.fastmcp import killable_server
from tests.support.server.caller_v2026 import Caller
from tests.support.server.transports import HttpWire

pytestmark = pytest.mark.anyio

YES: dict[str, Any] = {"action": "accept", "content": {"value": True}}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


class Site:
    """A server on a port of its own that comes and goes, and its file."""

    def __init__(self, folder: Path) -> None:
        self.store, self.diary, self.port = folder / "tasks.db", folder / "diary", free_port()
        self.server: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        arguments = (str(killable_server.__file__), str(self.port), str(self.store), str(self.diary))
        self.server = await asyncio.create_subprocess_exec(sys.executable, *arguments)

    async def kill(self) -> None:
        assert self.server is not None
        self.server.kill()
        await self.server.wait()

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    def lines(self) -> list[str]:
        return self.diary.read_text().splitlines() if self.diary.exists() else []

    async def until_written(self, line: str) -> None:
        """It is another process, so there is nothing to wait on but time."""
        async with asyncio.timeout(30):
            while line not in await asyncio.to_thread(self.lines):  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)

    async def insist(self, caller: Caller, method: str, **params: Any) -> dict[str, Any]:
        """Send a request until it is answered: a connection may break or be refused."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await caller.request(method, params)
                except httpx2.TransportError:
                    await asyncio.sleep(0.03)

    async def poll(self, caller: Caller, task_id: str, *statuses: str) -> dict[str, Any]:
        while True:
            task = await self.insist(caller, "tasks/get", taskId=task_id)
            if task["status"] in (*statuses, "completed", "failed", "cancelled"):
                return task
            await asyncio.sleep(0.03)


@asynccontextmanager
async def started(folder: Path) -> AsyncGenerator[tuple[Site, Caller]]:
    site = Site(folder)
    await site.start()
    try:
        async with httpx2.AsyncClient(timeout=10, trust_env=False) as client:
            yield site, Caller(HttpWire(f"http://127.0.0.1:{site.port}/mcp", client))
    finally:
        await site.kill()


async def test_steps_that_are_done_and_answers_that_were_given_survive_a_server_that_is_killed(tmp_path: Path) -> None:
    async with started(tmp_path) as (site, caller):
        working = (await site.insist(caller, "tools/call", name="work", arguments={"ms": 300}))["taskId"]
        asking = (await site.insist(caller, "tools/call", name="ask", arguments={}))["taskId"]
        [first] = (await site.poll(caller, asking, "input_required"))["inputRequests"]
        await site.until_written(f"{working} load")
        await site.restart()
        assert list((await site.poll(caller, asking, "input_required"))["inputRequests"]) == [first]
        await site.insist(caller, "tasks/update", taskId=asking, inputResponses={first: YES})
        await site.until_written(f"{asking} answered")
        await site.restart()
        asked = await site.poll(caller, asking, "input_required")
        while first in asked["inputRequests"]:
            asked = await site.poll(caller, asking, "input_required")
        [second] = asked["inputRequests"]
        await site.insist(caller, "tasks/update", taskId=asking, inputResponses={second: YES})
        assert (await site.poll(caller, asking))["result"]["structuredContent"] == {"result": "accept accept"}
        worked = await site.poll(caller, working)
        assert worked["result"]["structuredContent"] == {"result": [f"{step} done" for step in killable_server.STEPS]}
        runs = Counter(site.lines())
        # What was under way when the server was killed is run again; what had been finished is not.
        assert sum(runs[f"{working} {step}"] for step in killable_server.STEPS) <= len(killable_server.STEPS) + 2
