"""Tasks of a killed FastMCP server resume from their checkpoints in the next one."""

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
from tests.support.server.transports import HttpTransport

pytestmark = pytest.mark.anyio

YES: dict[str, Any] = {"action": "accept", "content": {"value": True}}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


class ServerProcess:
    """A server process on its own port, with its log file."""

    def __init__(self, folder: Path) -> None:
        self.store, self.log, self.port = folder / "tasks.db", folder / "log", free_port()
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        arguments = (str(killable_server.__file__), str(self.port), str(self.store), str(self.log))
        self.process = await asyncio.create_subprocess_exec(sys.executable, *arguments)

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    async def wait_for_line(self, line: str) -> None:
        """Wait until the server has logged a line. It is another process, so this polls."""
        async with asyncio.timeout(30):
            while line not in await asyncio.to_thread(self.lines):  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)

    async def request_until_answered(self, caller: Caller, method: str, **params: Any) -> dict[str, Any]:
        """Send a request until it is answered: a connection may break or be refused."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await caller.request(method, params)
                except httpx2.TransportError:
                    await asyncio.sleep(0.03)

    async def poll(self, caller: Caller, task_id: str, *statuses: str) -> dict[str, Any]:
        while True:
            task = await self.request_until_answered(caller, "tasks/get", taskId=task_id)
            if task["status"] in (*statuses, "completed", "failed", "cancelled"):
                return task
            await asyncio.sleep(0.03)


@asynccontextmanager
async def started(folder: Path) -> AsyncGenerator[tuple[ServerProcess, Caller]]:
    server = ServerProcess(folder)
    await server.start()
    try:
        async with httpx2.AsyncClient(timeout=10, trust_env=False) as client:
            yield server, Caller(HttpTransport(f"http://127.0.0.1:{server.port}/mcp", client))
    finally:
        await server.kill()


async def test_finished_steps_and_answers_survive_a_killed_server(tmp_path: Path) -> None:
    async with started(tmp_path) as (server, caller):
        work_id = (await server.request_until_answered(caller, "tools/call", name="work", arguments={"ms": 300}))[
            "taskId"
        ]
        ask_id = (await server.request_until_answered(caller, "tools/call", name="ask", arguments={}))["taskId"]
        [first] = (await server.poll(caller, ask_id, "input_required"))["inputRequests"]
        await server.wait_for_line(f"{work_id} load")
        await server.restart()
        assert list((await server.poll(caller, ask_id, "input_required"))["inputRequests"]) == [first]
        await server.request_until_answered(caller, "tasks/update", taskId=ask_id, inputResponses={first: YES})
        await server.wait_for_line(f"{ask_id} answered")
        await server.restart()
        view = await server.poll(caller, ask_id, "input_required")
        while first in view["inputRequests"]:
            view = await server.poll(caller, ask_id, "input_required")
        [second] = view["inputRequests"]
        await server.request_until_answered(caller, "tasks/update", taskId=ask_id, inputResponses={second: YES})
        assert (await server.poll(caller, ask_id))["result"]["structuredContent"] == {"result": "accept accept"}
        worked = await server.poll(caller, work_id)
        assert worked["result"]["structuredContent"] == {"result": [f"{step} done" for step in killable_server.STEPS]}
        runs = Counter(server.lines())
        # Only the step that was running when the server was killed runs again.
        assert sum(runs[f"{work_id} {step}"] for step in killable_server.STEPS) <= len(killable_server.STEPS) + 2
