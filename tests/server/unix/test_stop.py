"""A server on a Unix socket stops cleanly at any time, and leaves no files."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer

from raincheck import Tasks
from raincheck.core.lifecycle import Phase
from raincheck.errors import ConfigurationError
from raincheck.server.unix.server import UnixListener
from tests.server.lifecycle.test_stop import (
    HeldStore,
    by_a_deadline,
    by_a_scope,
    by_cancelling,
    by_cancelling_thrice,
    kept_in,
)
from tests.server.test_transports import build, go_through_it_all
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import NO_TASKS, add_gated
from tests.support.server.unix.transports import (
    ListenStatus,
    UnixTransport,
    listening,
    names_in,
    over_unix,
    peer_at,
    short_folder,
)

pytestmark = pytest.mark.anyio

IN_EVERY_WAY = pytest.mark.parametrize("leave", [by_a_scope, by_a_deadline, by_cancelling, by_cancelling_thrice])

Leave = Callable[..., Awaitable[None]]


@pytest.fixture
def path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "shop.sock"


def open_sockets() -> int:
    """How many this process has."""
    count = 0
    for handle in Path("/proc/self/fd").iterdir():
        try:
            count += str(handle.readlink()).startswith("socket:")
        except OSError:
            continue
    return count


class Site:
    """A server whose lifespan and whose one body write down when they are left."""

    def __init__(self, store: Path) -> None:
        self.lines: list[str] = []
        self.started = asyncio.Event()
        self.server = ExampleServer(store, server={"lifespan": self._lifespan})
        self.server.tasks.tool(name="work")(self._work)

    @asynccontextmanager
    async def _lifespan(self, _: MCPServer[Any]) -> AsyncGenerator[str]:
        # Without `finally`, and with something to wait for: as on other transports, it is not cut off.
        yield "state"
        await asyncio.sleep(0.01)
        self.lines.append("lifespan left")

    async def _work(self, ctx: Context[str, Any]) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.lines.append(f"body left, with its {ctx.request_context.lifespan_context}")


@IN_EVERY_WAY
async def test_a_server_that_is_stopped_hands_its_tasks_back_and_leaves_nothing_open(path: Path, leave: Leave) -> None:
    site = Site(path.parent / "tasks.db")
    sockets = open_sockets()
    called: list[str] = []
    up = ListenStatus()

    async def call() -> None:
        await up.is_up.wait()
        async with over_unix(path) as transport:
            called.append(await Caller(transport).start("work"))
            await asyncio.Event().wait()

    calling = asyncio.create_task(call())
    await leave(partial(site.server.tasks.serve_unix, path, task_status=up), site.started)
    assert site.lines == ["body left, with its state", "lifespan left"]
    calling.cancel()
    await asyncio.wait([calling])
    assert names_in(path.parent) == {"tasks.db"}
    assert open_sockets() == sockets
    (task,) = await kept_in(path.parent / "tasks.db")
    assert (task.phase, task.attempt, [task.id]) == (Phase.QUEUED, None, called)
    with pytest.raises(ConfigurationError, match="are not running"):
        _ = site.server.tasks.engine


@IN_EVERY_WAY
async def test_a_server_that_is_stopped_while_it_starts_leaves_nothing_open(
    path: Path, leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raincheck.stores.factory.make_store", HeldStore)
    HeldStore.reached = asyncio.Event()
    site = Site(path.parent / "tasks.db")
    sockets = open_sockets()
    await leave(partial(site.server.tasks.serve_unix, path), HeldStore.reached)
    assert names_in(path.parent) == {"tasks.db"}
    assert open_sockets() == sockets


async def test_a_server_that_is_stopped_while_its_lifespan_begins_does_not_wait_for_it(path: Path) -> None:
    begins = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[None]:
        begins.set()
        await asyncio.Event().wait()
        yield

    server = ExampleServer(server={"lifespan": lifespan})
    await by_cancelling(partial(server.tasks.serve_unix, path), begins)
    assert names_in(path.parent) == set()


async def test_a_server_that_is_stopped_at_once_leaves_nothing(path: Path) -> None:
    """Whatever step of its start it is at."""
    for turns in range(40):
        serving = asyncio.ensure_future(build().tasks.serve_unix(path))
        for _ in range(turns):
            await asyncio.sleep(0)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert names_in(path.parent) == set()


async def test_a_server_that_was_stopped_can_serve_again(path: Path) -> None:
    server = build()
    for _ in range(2):
        async with listening(server.tasks, path), over_unix(path) as transport:
            await go_through_it_all(Caller(transport))


async def test_one_server_may_serve_on_several_sockets(path: Path) -> None:
    server = build()
    another = path.with_name("another.sock")
    async with (
        listening(server.tasks, path),
        listening(server.tasks, another),
        over_unix(path) as here,
        over_unix(another) as there,
    ):
        task_id = await Caller(here).start("ask")
        assert (await Caller(there).until(task_id, "input_required"))["taskId"] == task_id


async def test_waiting_callers_get_an_error_when_the_server_stops(path: Path) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with peer_of(server.tasks, path) as (peer, stop):
        await peer.send(Caller(UnixTransport(peer), capabilities=NO_TASKS).message("tools/call", {"name": "gated"}))
        await gate.started.wait()
        stop()
        assert (await peer.receive_message())["error"]["message"] == "Connection closed"
        assert await peer.rest() == b""


async def test_a_server_stops_though_a_peer_does_not_read(path: Path) -> None:
    """Neither a peer that should get the final messages, nor one with a full buffer."""
    server = ExampleServer()
    gate = add_gated(server)

    @server.mcp.tool()
    async def talk() -> str:
        return "x" * 2**20

    async with peer_of(server.tasks, path) as (peer, stop):
        await peer.greet()
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "gated"}})
        await gate.started.wait()
        for request_id in range(2, 9):
            await peer.send({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": {"name": "talk"}})
        # Until the server is stuck in the middle of an answer: there is nothing to wait on but what has come.
        assert b'"id":2' in await peer.reader.readexactly(2**18)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's can
        async with asyncio.timeout(10):
            await stop()


async def test_a_connection_that_was_never_served_is_closed_on_stop(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_even_begin(*_: object) -> None: ...

    monkeypatch.setattr(UnixListener, "_serve", not_even_begin)
    async with peer_of(build().tasks, path) as (peer, stop):
        await peer.send({})
        await asyncio.sleep(0)
        stop()
        assert await peer.rest() == b""


async def test_the_next_server_can_start_while_the_last_one_stops(path: Path) -> None:
    leaving, may_leave = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[None]:
        yield
        leaving.set()
        await may_leave.wait()

    old = ExampleServer(server={"lifespan": lifespan})
    async with peer_of(old.tasks, path) as (_, stop):
        stopped = stop()
        await leaving.wait()
        async with listening(build().tasks, path), over_unix(path) as transport:
            may_leave.set()
            await stopped
            await go_through_it_all(Caller(transport))


@asynccontextmanager
async def peer_of(tasks: Tasks, path: Path) -> AsyncGenerator[tuple[Any, Callable[[], Awaitable[object]]]]:
    """Somebody who is connected, and a way to stop the server, which may be waited for."""
    up = ListenStatus()
    serving = asyncio.ensure_future(tasks.serve_unix(path, task_status=up))

    def stop() -> Awaitable[object]:
        serving.cancel()
        return asyncio.ensure_future(asyncio.wait([serving]))

    await up.is_up.wait()
    async with peer_at(path) as peer:
        yield peer, stop
    await stop()
