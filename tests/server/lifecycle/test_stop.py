"""A server that is stopped while it works stops cleanly: bodies, engine, lifespan."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import Context, MCPServer

from raincheck import open_store
from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Task
from raincheck.errors import ConfigurationError
from raincheck.stores.requests import TaskQuery
from raincheck.stores.sqlite import SqliteStore
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.transports import in_memory

pytestmark = pytest.mark.anyio


class Site:
    """A server whose lifespan and whose one body write down when they are left."""

    def __init__(self, store: Path) -> None:
        self.lines: list[str] = []
        self.started = asyncio.Event()
        self.server = ExampleServer(store, server={"lifespan": self._lifespan})
        self.server.tasks.tool(name="work")(self._work)

    @asynccontextmanager
    async def _lifespan(self, _: MCPServer[Any]) -> AsyncGenerator[str]:
        try:
            yield "state"
        finally:
            self.lines.append("lifespan left")

    async def _work(self, ctx: Context[str, Any]) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            # It takes its time to clean up.
            for _ in range(5):
                await asyncio.sleep(0)
            self.lines.append(f"body left, with its {ctx.request_context.lifespan_context}")

    async def work(self) -> None:
        """Run without serving anybody, with a body in the middle of its work."""
        async with self.server.tasks.running() as engine:
            await engine.submit("work")
            await asyncio.Event().wait()

    async def serve(self) -> None:
        """The same as an application of a web server."""
        app = self.server.mcp.streamable_http_app()
        async with app.router.lifespan_context(app):
            await self.server.tasks.engine.submit("work")
            await asyncio.Event().wait()


async def by_a_scope(run: Callable[[], Coroutine[Any, Any, None]], begun: asyncio.Event) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await begun.wait()
        group.cancel_scope.cancel()


async def by_a_deadline(run: Callable[[], Coroutine[Any, Any, None]], begun: asyncio.Event) -> None:
    async def wait_and_leave() -> None:
        await begun.wait()
        scope.deadline = anyio.current_time() - 1

    leaving = asyncio.create_task(wait_and_leave())
    with anyio.CancelScope() as scope:
        await run()
    await leaving
    assert scope.cancelled_caught


async def by_cancelling(run: Callable[[], Coroutine[Any, Any, None]], begun: asyncio.Event) -> None:
    running = asyncio.ensure_future(run())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def by_cancelling_thrice(run: Callable[[], Coroutine[Any, Any, None]], begun: asyncio.Event) -> None:
    """Cancel repeatedly, as an impatient caller does."""
    running = asyncio.ensure_future(run())
    await begun.wait()
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running


async def kept_in(file: Path) -> list[Task]:
    async with open_store(file) as store:
        page = await store.list_tasks(TaskQuery(Scope.for_namespace("shop")), now=SystemClock().now(), limit=10)
        return list(page.tasks)


@pytest.mark.parametrize("leave", [by_a_scope, by_a_deadline, by_cancelling, by_cancelling_thrice])
async def test_a_process_that_works_and_is_cancelled_hands_its_tasks_back_and_closes_its_store(
    leave: Callable[..., Awaitable[None]], tmp_path: Path
) -> None:
    site = Site(tmp_path / "tasks.db")
    await leave(site.work, site.started)
    assert site.lines == ["body left, with its state", "lifespan left"]
    with pytest.raises(ConfigurationError, match="are not running"):
        _ = site.server.tasks.engine
    (task,) = await kept_in(tmp_path / "tasks.db")
    assert (task.phase, task.attempt) == (Phase.QUEUED, None)
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("leave", [by_a_scope, by_cancelling])
async def test_a_server_that_is_cancelled_hands_its_tasks_back_and_closes_its_store(
    leave: Callable[..., Awaitable[None]], tmp_path: Path
) -> None:
    site = Site(tmp_path / "tasks.db")
    await leave(site.serve, site.started)
    assert site.lines == ["body left, with its state", "lifespan left"]
    (task,) = await kept_in(tmp_path / "tasks.db")
    assert (task.phase, task.attempt) == (Phase.QUEUED, None)
    assert open_files(tmp_path) == []


async def test_a_server_that_was_cancelled_can_run_again(tmp_path: Path) -> None:
    site = Site(tmp_path / "tasks.db")
    await by_a_scope(site.work, site.started)
    site.started.clear()
    # The task that was handed back resumes.
    async with site.server.tasks.running():
        await site.started.wait()
    assert site.lines == ["body left, with its state", "lifespan left"] * 2


class HeldStore(SqliteStore):
    """One that is read for the first time, and does not answer."""

    reached: asyncio.Event

    async def get_or_create_secret(self, name: str) -> bytes:
        self.reached.set()
        await asyncio.sleep(0)
        return await super().get_or_create_secret(name)


@pytest.mark.parametrize("leave", [by_a_scope, by_cancelling])
async def test_a_server_that_is_cancelled_while_it_starts_leaves_nothing_open(
    leave: Callable[..., Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raincheck.stores.factory.make_store", HeldStore)
    HeldStore.reached = asyncio.Event()
    site = Site(tmp_path / "tasks.db")
    await leave(site.work, HeldStore.reached)
    assert site.lines[-1] == "lifespan left"
    assert open_files(tmp_path) == []
    with pytest.raises(ConfigurationError, match="are not running"):
        _ = site.server.tasks.engine


def open_files(folder: Path) -> list[str]:
    """Which files of a folder this process has open."""
    found: list[str] = []
    for handle in Path("/proc/self/fd").iterdir():
        try:
            target = str(handle.readlink())
        except OSError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found


async def test_a_state_shared_by_two_connections_outlives_the_first() -> None:
    shared = {"database": "open"}

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[dict[str, str]]:
        yield shared

    server = ExampleServer(server={"lifespan": lifespan})

    @server.tasks.tool()
    async def look(ctx: Context[dict[str, str], Any]) -> bool:
        return ctx.request_context.lifespan_context is shared

    async with in_memory(server.mcp) as transport:
        caller = Caller(transport)
        await caller.request("server/discover")
        async with in_memory(server.mcp) as another:
            await Caller(another).request("server/discover")
            assert (await caller.result(await caller.start("look")))["structuredContent"] == {"result": True}
        assert (await caller.result(await caller.start("look")))["structuredContent"] == {"result": True}
