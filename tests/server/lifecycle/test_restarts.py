"""When server processes are killed, their callers lose connections, and no task."""

import asyncio
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.server import killable_server
from tests.support.server.caller_v2026 import Caller
from tests.support.server.transports import HttpTransport

pytestmark = pytest.mark.anyio

NO = {"action": "decline"}
TERMINAL = {"completed", "failed", "cancelled"}


class Site:
    """A file, a diary, and servers on ports of their own that come and go."""

    def __init__(self, folder: Path) -> None:
        self.store, self.diary = folder / "tasks.db", folder / "diary"
        self.servers: dict[int, asyncio.subprocess.Process] = {}

    def free_port(self) -> int:
        with socket.create_server(("127.0.0.1", 0)) as bound:
            return bound.getsockname()[1]

    async def start(self, port: int) -> None:
        arguments = (killable_server.__file__, str(port), str(self.store), str(self.diary))
        self.servers[port] = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL
        )

    async def kill(self, port: int) -> None:
        server = self.servers.pop(port)
        server.kill()
        assert await server.wait() == -signal.SIGKILL

    async def stop_all(self) -> None:
        for port in list(self.servers):
            await self.kill(port)

    def lines(self) -> list[str]:
        return self.diary.read_text().splitlines() if self.diary.exists() else []

    async def wait_for_line(self, line: str) -> None:
        """Until a server has written this. It is another process, so there is nothing to wait on but time."""
        async with asyncio.timeout(60):
            while line not in await asyncio.to_thread(self.lines):  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    try:
        yield site
    finally:
        await site.stop_all()


@asynccontextmanager
async def connect(port: int) -> AsyncGenerator[Caller]:
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as client:
        yield Caller(HttpTransport(f"http://127.0.0.1:{port}/mcp", client))


async def insist(caller: Caller, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request until it is answered. A connection may break or be refused; an answer must be a right one."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await caller.request(method, params)
            except httpx2.TransportError:
                await asyncio.sleep(0.03)


async def start_task(caller: Caller, tool: str, arguments: dict[str, Any] | None = None) -> str:
    created = await insist(caller, "tools/call", {"name": tool, "arguments": arguments or {}})
    assert created["resultType"] == "task"
    return created["taskId"]


async def poll(caller: Caller, task_id: str, *statuses: str) -> dict[str, Any]:
    """Poll all the time. Whatever is answered is valid, and a task never goes back from its end."""
    while True:
        task = await insist(caller, "tasks/get", {"taskId": task_id})
        if task["status"] in statuses or task["status"] in TERMINAL:
            return task
        await asyncio.sleep(0.03)


async def restart(site: Site, port: int) -> None:
    await site.kill(port)
    await site.start(port)


async def test_a_caller_that_polls_gets_its_result_though_the_server_is_killed_again_and_again(site: Site) -> None:
    """Finished steps are not run again, and answers that were given are not asked for again."""
    port = site.free_port()
    await site.start(port)
    yes = {"action": "accept", "content": {"sure": True}}
    async with connect(port) as caller:
        working = await start_task(caller, "work", {"ms": 300})
        asking = await start_task(caller, "ask")
        polling = asyncio.create_task(poll(caller, working))
        await site.wait_for_line(f"{working} load")
        assert list((await poll(caller, asking, "input_required"))["inputRequests"]) == ["elicit-0"]
        await restart(site, port)
        assert list((await poll(caller, asking, "input_required"))["inputRequests"]) == ["elicit-0"]
        await insist(caller, "tasks/update", {"taskId": asking, "inputResponses": {"elicit-0": yes}})
        await site.wait_for_line(f"{asking} answered")
        await restart(site, port)
        asked = await poll(caller, asking, "input_required")
        while "elicit-1" not in asked["inputRequests"]:
            asked = await poll(caller, asking, "input_required")
        assert list(asked["inputRequests"]) == ["elicit-1"]
        await restart(site, port)
        await insist(caller, "tasks/update", {"taskId": asking, "inputResponses": {"elicit-1": yes}})
        assert (await poll(caller, asking))["result"]["content"][0]["text"] == "accept accept"
        worked = await polling
        assert worked["status"] == "completed"
        done = [f"{step} done" for step in killable_server.STEPS]
        assert worked["result"]["structuredContent"] == {"result": done}
    runs = Counter(site.lines())
    # What was under way when the server was killed is run again; what had been finished is not.
    assert sum(runs[f"{working} {step}"] for step in killable_server.STEPS) <= len(killable_server.STEPS) + 3
    assert runs[f"{asking} answered"] <= 2


async def test_a_server_that_gets_a_stop_signal_stops_cleanly_and_the_next_resumes_its_task(site: Site) -> None:
    port = site.free_port()
    await site.start(port)
    async with connect(port) as caller:
        task_id = await start_task(caller, "wait")
        await site.wait_for_line(f"{task_id} waits")
        server = site.servers.pop(port)
        server.terminate()
        assert await asyncio.wait_for(server.wait(), 60) in (0, -signal.SIGTERM)
        assert site.lines() == [f"{task_id} waits", f"{task_id} stopped"]
        await site.start(port)
        # It was handed back, so it starts before its lease would expire.
        async with asyncio.timeout(10):
            while site.lines().count(f"{task_id} waits") < 2:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        await insist(caller, "tasks/cancel", {"taskId": task_id})
        assert (await poll(caller, task_id))["status"] == "cancelled"


async def test_two_servers_on_one_file_answer_for_each_others_tasks(site: Site) -> None:
    """What is created on one is read, answered, cancelled and listened to on the other, within a second or two."""
    ports = [site.free_port(), site.free_port()]
    for port in ports:
        await site.start(port)
    async with connect(ports[0]) as here, connect(ports[1]) as there:
        await insist(there, "server/discover", {})
        asking = await start_task(here, "ask")
        assert (await there.get(asking))["taskId"] == asking
        async with asyncio.timeout(60), here.listening(asking) as pushed:
            async for task in pushed:
                await there.update(asking, dict.fromkeys(task.get("inputRequests", {}), NO))
        assert (await there.result(asking))["content"][0]["text"] == "decline decline"

        waiting = await start_task(here, "wait")
        await site.wait_for_line(f"{waiting} waits")
        async with here.listening(waiting) as pushed_here, there.listening(waiting) as pushed_there:
            assert (await anext(pushed_here))["status"] == (await anext(pushed_there))["status"] == "working"
            # Either server may run it, so for one of the two this goes across processes.
            async with asyncio.timeout(60):
                await there.cancel(waiting)
                assert [task["status"] async for task in pushed_there][-1] == "cancelled"
                assert [task["status"] async for task in pushed_here][-1] == "cancelled"
                await site.wait_for_line(f"{waiting} stopped")
