"""A server with tasks serves callers of both generations on a Unix socket, as it does on its other transports."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolRequestParams, CallToolResult, TextContent

from raincheck import Owner, Tasks
from raincheck.core.lifecycle import Phase
from raincheck.errors import ConfigurationError, RaincheckError
from tests.server.test_transports import build, go_through_it_all
from tests.support import ROOT
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import NO_TASKS, YES, add_gated, add_greeting, text_of
from tests.support.server.transports import over_http, over_stdio
from tests.support.server.unix.transports import (
    UnixTransport,
    listening,
    over_unix,
    peer_at,
    program,
    short_folder,
    until_up,
)

pytestmark = pytest.mark.anyio

CONFORMANCE = ROOT / "examples/conformance.py"


@pytest.fixture
def path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "shop.sock"


async def test_tasks_work_over_a_unix_socket(path: Path) -> None:
    example_server = build()
    async with listening(example_server.tasks, path), over_unix(path) as transport:
        await go_through_it_all(Caller(transport))


async def test_tasks_work_on_many_connections_at_once(path: Path) -> None:
    example_server = build()

    async def one() -> None:
        async with over_unix(path) as transport:
            await go_through_it_all(Caller(transport))

    async with listening(example_server.tasks, path), asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(one())


async def test_a_2025_caller_initializes_and_waits_for_its_result(path: Path) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with listening(example_server.tasks, path), peer_at(path) as peer:
        assert (await peer.greet())["protocolVersion"] == "2025-11-25"
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "gated"}})
        await gate.started.wait()
        # Meanwhile it is served.
        assert await peer.is_served()
        gate.open.set()
        answer = await peer.receive_message()
        assert (answer["id"], text_of(answer["result"])) == (1, "through")


async def test_a_2025_caller_is_asked_on_its_connection(path: Path) -> None:
    example_server = ExampleServer()
    add_greeting(example_server)
    async with listening(example_server.tasks, path), peer_at(path) as peer:
        await peer.greet()
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "greet"}})
        question = await peer.receive_message()
        assert question["method"] == "elicitation/create"
        await peer.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
        assert text_of((await peer.receive_message())["result"]) == "Hello, Ada!"


async def test_a_2025_caller_starts_a_task_and_reads_it_on_another_connection(path: Path) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with listening(example_server.tasks, path):
        async with peer_at(path) as peer:
            await peer.greet()
            task_id = (await peer.ask(1, "tools/call", name="gated", task={}))["result"]["task"]["taskId"]
            await gate.started.wait()
        gate.open.set()
        async with peer_at(path) as peer:
            await peer.greet()
            assert text_of((await peer.ask(1, "tasks/result", taskId=task_id))["result"]) == "through"
        async with over_unix(path) as transport:
            assert text_of(await Caller(transport).result(task_id)) == "through"


async def test_each_connection_has_the_generation_of_its_first_message(path: Path) -> None:
    example_server = build()
    async with listening(example_server.tasks, path), peer_at(path) as old, over_unix(path) as transport:
        await old.greet()
        new = Caller(transport)
        assert "tools" in await new.request("tools/list")
        assert await old.is_served()
        await old.send(new.message("tools/list"))
        assert "handshake" in (await old.receive_message())["error"]["message"]
        with pytest.raises(Refused, match="not accepted"):
            await new.request("initialize")
        assert await old.is_served()
        await go_through_it_all(new)


async def test_every_peer_is_the_local_owner(path: Path) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with listening(example_server.tasks, path), over_unix(path) as transport:
        task_id = await Caller(transport).start("gated")
        await gate.started.wait()
        (task,) = (await example_server.tasks.engine.list_tasks(owner=Owner.local())).tasks
        assert task.id == task_id


async def test_a_low_level_server_is_served_too(path: Path) -> None:
    async def call_tool(_: Any, __: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(text="through")])

    server = Server[Any]("shop", on_call_tool=call_tool)
    tasks = Tasks(server, "memory:", settings=QUICK)
    tasks.enable("pass")
    async with listening(tasks, path), over_unix(path) as transport:
        caller = Caller(transport)
        assert text_of(await caller.result(await caller.start("pass"))) == "through"


async def test_the_lifespan_is_entered_once_for_all_connections(path: Path) -> None:
    entered: list[str] = []

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[str]:
        entered.append("in")
        yield "state"
        entered.append("out")

    example_server = ExampleServer(server={"lifespan": lifespan})

    @example_server.tasks.tool
    async def look(ctx: Context[str, Any]) -> str:
        return ctx.request_context.lifespan_context

    @example_server.mcp.tool()
    async def look_plainly(ctx: Context[str, Any]) -> str:
        return ctx.request_context.lifespan_context

    async with listening(example_server.tasks, path):
        assert entered == ["in"]
        async with over_unix(path) as one, over_unix(path) as another:
            for transport in (one, another):
                caller = Caller(transport)
                assert text_of(await caller.result(await caller.start("look"))) == "state"
                assert text_of(await caller.call("look_plainly")) == "state"
        assert entered == ["in"]
    assert entered == ["in", "out"]


async def test_a_peer_that_connects_while_the_server_starts_waits(path: Path) -> None:
    begins, goes_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[None]:
        begins.set()
        await goes_on.wait()
        yield

    example_server = ExampleServer(server={"lifespan": lifespan})
    serving = asyncio.create_task(example_server.tasks.serve_unix(path))
    await begins.wait()
    async with peer_at(path) as peer:
        greeting = asyncio.create_task(peer.greet())
        done, _ = await asyncio.wait([greeting], timeout=0.05)
        assert not done
        goes_on.set()
        assert (await greeting)["serverInfo"]["name"] == "shop"
    serving.cancel()
    await asyncio.wait([serving])


async def test_a_lifespan_that_fails_leaves_no_socket_behind(path: Path) -> None:
    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[None]:
        raise OSError("no database")
        yield

    with pytest.raises(OSError, match="no database"):
        await ExampleServer(server={"lifespan": lifespan}).tasks.serve_unix(path)
    assert list(path.parent.iterdir()) == []


async def test_a_store_that_can_not_be_opened_leaves_no_socket_behind(path: Path) -> None:
    with pytest.raises(RaincheckError, match="later"):
        await ExampleServer(path.parent / "later" / "tasks.db").tasks.serve_unix(path)
    assert list(path.parent.iterdir()) == []


async def test_a_server_that_finds_another_at_its_path_does_not_start_at_all(path: Path) -> None:
    """Nor does it run anybody's tasks for a moment."""
    other = build()
    example_server = ExampleServer(path.parent / "tasks.db")
    async with listening(other.tasks, path):
        with pytest.raises(ConfigurationError, match="another server listens"):
            await example_server.tasks.serve_unix(path)
        assert not (path.parent / "tasks.db").exists()
        async with over_unix(path) as transport:
            await go_through_it_all(Caller(transport))


def local_owner(_: object) -> Owner:
    return Owner.local()


async def test_a_task_started_over_http_is_read_over_the_socket_of_the_same_process(path: Path) -> None:
    example_server = ExampleServer(owner=local_owner)
    gate = add_gated(example_server)
    async with (
        over_http(example_server.mcp.streamable_http_app()) as http,
        listening(example_server.tasks, path),
        over_unix(path) as unix,
    ):
        task_id = await Caller(http).start("gated")
        await gate.started.wait()
        there = Caller(unix)
        assert (await there.get(task_id))["status"] == "working"
        gate.open.set()
        assert text_of(await there.result(task_id)) == "through"
        assert text_of(await Caller(http).result(task_id)) == "through"


async def test_one_transport_may_stop_while_the_other_continues(path: Path) -> None:
    example_server = ExampleServer(owner=local_owner)
    gate = add_gated(example_server)
    async with over_http(example_server.mcp.streamable_http_app()) as http:
        async with listening(example_server.tasks, path), over_unix(path) as unix:
            task_id = await Caller(unix).start("gated")
            await gate.started.wait()
        gate.open.set()
        assert text_of(await Caller(http).result(task_id)) == "through"
        assert gate.task_ids == [task_id]


async def test_a_task_of_an_anonymous_http_caller_is_unknown_on_the_socket(path: Path) -> None:
    example_server = ExampleServer()
    add_gated(example_server)
    async with (
        over_http(example_server.mcp.streamable_http_app()) as http,
        listening(example_server.tasks, path),
        over_unix(path) as unix,
    ):
        task_id = await Caller(http).start("gated")
        with pytest.raises(Refused, match="not found"):
            await Caller(unix).get(task_id)


async def test_a_task_started_over_stdio_is_read_over_the_socket_of_another_process(path: Path) -> None:
    store = ("--store", str(path.parent / "tasks.db"))
    async with program(CONFORMANCE, "--unix", path, *store) as server:
        await until_up(path, server)
        async with over_stdio(CONFORMANCE, "--transport", "stdio", *store) as stdio, over_unix(path) as unix:
            task_id = await Caller(stdio).start("confirm_delete", {"filename": "a.txt"})
            there = Caller(unix)
            await there.until(task_id, "input_required")
            answer = {"action": "accept", "content": {"confirm": True}}
            await there.update(task_id, {"elicit-0": answer})
            assert text_of(await Caller(stdio).result(task_id)) == "a.txt is deleted"
        # And a task that outlives the process that started it.
        async with over_stdio(CONFORMANCE, "--transport", "stdio", *store) as stdio:
            task_id = await Caller(stdio).start("slow_compute", {"seconds": 1, "label": "goes on"})
        async with over_unix(path) as unix:
            assert text_of(await Caller(unix).result(task_id)) == "goes on: done after 1 s"


async def the_end_of_the_only_task(example_server: ExampleServer) -> tuple[Phase, str | None]:
    (task,) = (await example_server.tasks.engine.list_tasks()).tasks
    ended = (await example_server.tasks.engine.wait(task.id)).task
    return ended.phase, ended.status_message


async def test_a_connection_that_ends_cancels_the_call_that_waited_on_it(path: Path) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with listening(example_server.tasks, path):
        async with peer_at(path) as peer:
            await peer.send(Caller(UnixTransport(peer), capabilities=NO_TASKS).message("tools/call", {"name": "gated"}))
            await gate.started.wait()
        await gate.stopped.wait()
        assert await the_end_of_the_only_task(example_server) == (Phase.CANCELLED, "its caller disconnected")


async def test_a_2025_connection_that_ends_cancels_the_call_that_waited_on_it(path: Path) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with listening(example_server.tasks, path):
        async with peer_at(path) as peer:
            await peer.greet()
            await peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "gated"}})
            await gate.started.wait()
        await gate.stopped.wait()
        assert await the_end_of_the_only_task(example_server) == (Phase.CANCELLED, "its caller disconnected")


async def test_a_task_continues_when_the_connection_that_started_it_ends(path: Path) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with listening(example_server.tasks, path):
        async with over_unix(path) as transport:
            task_id = await Caller(transport).start("gated")
            await gate.started.wait()
        async with over_unix(path) as transport:
            assert (await Caller(transport).get(task_id))["status"] == "working"
            gate.open.set()
            assert text_of(await Caller(transport).result(task_id)) == "through"
        assert not gate.stopped.is_set()


async def test_a_caller_that_stops_sending_gets_connection_closed(path: Path) -> None:
    """As on stdio: the end of the input ends the connection."""
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with listening(example_server.tasks, path), peer_at(path) as peer:
        await peer.send(Caller(UnixTransport(peer), capabilities=NO_TASKS).message("tools/call", {"name": "gated"}))
        await gate.started.wait()
        peer.writer.write_eof()
        assert (await peer.receive_message())["error"]["message"] == "Connection closed"
        assert await peer.rest() == b""


async def test_lines_may_arrive_in_any_chunks(path: Path) -> None:
    example_server = ExampleServer()
    async with listening(example_server.tasks, path), peer_at(path) as peer:
        await peer.greet()
        two = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n'
        for byte in two:
            await peer.send_bytes(bytes([byte]))
            await asyncio.sleep(0)
        assert [(await peer.receive_message())["id"] for _ in "12"] == [1, 2]
        await peer.send_bytes(two * 50)
        assert [(await peer.receive_message())["id"] for _ in range(100)] == [1, 2] * 50
