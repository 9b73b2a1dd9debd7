"""Calls that are repeated to a server that was killed meanwhile, or to another server on the same file."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from raincheck import open_store
from raincheck.clock import SystemClock
from raincheck.core.owner import Scope
from raincheck.stores.requests import TaskQuery
from tests.support.server.caller_v2025 import connected
from tests.support.server.caller_v2026 import Caller
from tests.support.server.idempotency import killable_server
from tests.support.server.idempotency.example_server import (
    ALICE,
    BY_TIERS,
    MODERN,
    WITH_TASKS,
    Host,
    PrintServer,
    connected_host,
)
from tests.support.server.tools import NO_TASKS, text_of
from tests.support.server.transports import HttpTransport
from tests.support.server.transports_v2025 import v2025_http

pytestmark = pytest.mark.anyio

PAGE = {"page": 7}


class Site:
    """A file, a diary, and servers on ports of their own that come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[int, asyncio.subprocess.Process] = {}

    async def start(self, port: int | None = None, **environment: str) -> int:
        if port is None:
            with socket.create_server(("127.0.0.1", 0)) as bound:
                port = bound.getsockname()[1]
        assert port is not None
        self.servers[port] = await asyncio.create_subprocess_exec(
            sys.executable,
            killable_server.__file__,
            str(port),
            str(self.folder),
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
        async with asyncio.timeout(30):
            while self.servers[port].returncode is None:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return port
                await asyncio.sleep(0.05)
        raise AssertionError("it did not start")

    async def dead(self, port: int) -> None:
        assert await self.servers.pop(port).wait() == -signal.SIGKILL

    async def kill(self, port: int) -> None:
        self.servers[port].kill()
        await self.dead(port)

    async def make(self, name: str) -> None:
        await asyncio.to_thread((self.folder / name).touch)

    def lines(self) -> list[str]:
        diary = self.folder / "diary"
        return diary.read_text().splitlines() if diary.exists() else []

    async def started(self) -> str:
        """Return the first task that has started."""
        async with asyncio.timeout(20):
            while not (lines := await asyncio.to_thread(self.lines)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        return lines[0].split()[0]

    async def ended(self) -> None:
        """Wait until all tasks have ended, by reading the file, so that no result is retrieved."""
        async with open_store(self.folder / "tasks.db") as store, asyncio.timeout(20):
            while True:
                query = TaskQuery(Scope.for_namespace("killable"))
                tasks = (await store.list_tasks(query, now=SystemClock().now(), limit=10)).tasks
                if tasks and all(task.is_terminal for task in tasks):
                    return
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def host(self, tier: str, port: int) -> AsyncGenerator[Host]:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx2.AsyncClient(timeout=30, trust_env=False))
            http = HttpTransport(f"http://127.0.0.1:{port}/mcp", client)
            if tier in MODERN:
                caller: Any = Caller(http, capabilities=None if tier == "v2026" else NO_TASKS, headers=ALICE)
            else:
                version = "2025-06-18" if "2025-06-18" in tier else "2025-11-25"
                transport = await stack.enter_async_context(v2025_http(http, **ALICE))
                caller = await stack.enter_async_context(connected(transport, version=version))
            yield Host(caller, tier)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    try:
        yield site
    finally:
        for server in site.servers.values():
            with suppress(ProcessLookupError):
                server.kill()
            await server.wait()


async def call(host: Host) -> str:
    return await host.call(PAGE, tool="work")


@BY_TIERS
async def test_a_host_whose_server_was_killed_in_the_middle_is_joined_to_its_task(site: Site, tier: str) -> None:
    port = await site.start()
    async with site.host(tier, port) as host:
        under_way = await host.begin(PAGE, tool="work")
        task_id = await site.started()
        if tier in WITH_TASKS:
            # The task may have started before its host receives its id.
            assert await host.handle(under_way) == task_id
        await site.kill(port)
        if tier not in WITH_TASKS:
            # Its connection broke.
            with pytest.raises(Exception, match=r"Error|closed|disconnected"):
                await host.answer(under_way)
    await site.start(port)
    async with site.host(tier, port) as host:
        under_way = await host.begin(PAGE, tool="work")
        await site.make("go")
        assert text_of(await host.result(under_way)) == f"7 by {task_id}"
        # Now that it has had that, it is another.
        assert await call(host) != f"7 by {task_id}"


@BY_TIERS
async def test_a_host_whose_server_was_killed_after_the_end_gets_the_result(site: Site, tier: str) -> None:
    port = await site.start()
    async with site.host("v2026", port) as host:
        task_id = await host.handle(await host.begin(PAGE, tool="work"))
        await site.make("go")
        await site.ended()
    await site.kill(port)
    await site.start(port)
    async with site.host(tier, port) as host:
        assert await call(host) == f"7 by {task_id}"
    assert site.lines() == [f"{task_id} begins"]


@BY_TIERS
async def test_a_server_killed_before_it_releases_a_key_returns_the_result_once_more(site: Site, tier: str) -> None:
    port = await site.start(DIES="yes")
    await site.make("go")
    async with site.host(tier, port) as host:
        first = await call(host)
        await site.make("die")
        await site.dead(port)
    await site.start(port)
    async with site.host(tier, port) as host:
        assert await call(host) == first
        assert await call(host) != first
    assert len(site.lines()) == 2


@BY_TIERS
async def test_a_host_that_retries_at_another_server_on_the_same_file_is_joined(site: Site, tier: str) -> None:
    here, there = await site.start(), await site.start()
    async with site.host("v2026", here) as left, site.host(tier, there) as host:
        task_id = await left.handle(await left.begin(PAGE, tool="work"))
        under_way = await host.begin(PAGE, tool="work")
        await site.make("go")
        assert text_of(await host.result(under_way)) == f"7 by {task_id}"
    assert site.lines() == [f"{task_id} begins"]


async def test_a_result_retrieved_from_one_server_runs_again_on_another_on_the_same_file(tmp_path: Path) -> None:
    here, there = PrintServer(tmp_path / "tasks.db"), PrintServer(tmp_path / "tasks.db")
    here.open.set()
    there.open.set()
    async with connected_host(here, "v2026") as one, connected_host(there, "fallback 2025-06-18") as other:
        for number in range(1, 21):
            await (one if number % 2 else other).call(PAGE)
            assert len({task_id for task_id, _ in (*here.runs, *there.runs)}) == number


async def test_a_host_is_joined_after_a_clean_restart(tmp_path: Path) -> None:
    before, after = PrintServer(tmp_path / "tasks.db"), PrintServer(tmp_path / "tasks.db")
    async with connected_host(before, "v2026") as host:
        task_id = await host.handle(await host.begin(PAGE))
        await before.started.wait()
    after.open.set()
    async with connected_host(after, "v2026") as host:
        assert await host.handle(await host.begin(PAGE)) == task_id
        assert await host.call(PAGE) == "run 1"
        assert [one for one, _ in after.runs] == [task_id]
