"""Pushes end with their connection, and a caller that does not read blocks no other caller."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage
from pydantic import TypeAdapter

from raincheck import TaskContext
from raincheck.server.sdk_compat import connection_of, lowlevel_of
from raincheck.server.v2025.notifications import PUSHES_KEY
from tests.support.server.caller_v2025 import VERSION, connected, v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated, text_of
from tests.support.server.transports import Message
from tests.support.server.transports_v2025 import v2025_http, v2025_serving
from tests.support.server.v2025.tools import ON_V2025_TRANSPORTS, add_echo, add_metered, ended, until

pytestmark = pytest.mark.anyio


class ConnectionRecorder:
    """Middleware that records the connections of calls."""

    def __init__(self) -> None:
        self.connections: list[Any] = []

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        connection = connection_of(ctx)
        if ctx.method == "tools/call" and connection not in self.connections:
            self.connections.append(connection)
        return await call_next(ctx)


def make() -> tuple[ExampleServer, ConnectionRecorder]:
    server, seeing = ExampleServer(), ConnectionRecorder()
    server.mcp.middleware.append(seeing)
    add_echo(server)
    return server, seeing


def background_tasks() -> set[str]:
    """The background tasks that push notifications, or read changes for them."""
    return {
        repr(task) for task in asyncio.all_tasks() if "StatusNotifier" in repr(task) or "_FollowedTask" in repr(task)
    }


@ON_V2025_TRANSPORTS
async def test_a_connection_keeps_nothing_of_tasks_that_have_ended(way: str) -> None:
    server, seeing = make()
    async with v2025_caller(server, way) as caller:
        for _ in range(5):
            await caller.until(await caller.start("say"), "completed")
        await caller.ping()
        (connection,) = seeing.connections
        assert connection.state[PUSHES_KEY] == {}
        assert background_tasks() == set()


@ON_V2025_TRANSPORTS
async def test_a_connection_that_closes_is_pushed_nothing_more_and_leaves_no_jobs(way: str) -> None:
    server, seeing = make()
    gate = add_gated(server)
    async with v2025_caller(server) as stays:
        if way == "memory":
            async with v2025_caller(server) as caller:
                ids = [await caller.start("gated") for _ in range(3)]
                await gate.started.wait()
                assert seeing.connections[0].state[PUSHES_KEY].keys() == set(ids)
                assert len(background_tasks()) == 6
        else:
            async with v2025_serving(server.mcp) as serving:
                async with v2025_http(serving) as transport, connected(transport) as caller:
                    ids = [await caller.start("gated") for _ in range(3)]
                    await gate.started.wait()
                    assert len(background_tasks()) == 6
                    await transport.end()
                await until(lambda: not background_tasks(), stays)
        await until(lambda: not background_tasks(), stays)
        assert seeing.connections[0].state[PUSHES_KEY] == {}
        # The work continues: only the wait for its result has ended.
        assert not gate.stopped.is_set()
        gate.open.set()
        for task_id in ids:
            assert (await ended(server, task_id, way)).task.status == "completed"


async def test_calls_and_results_over_and_over_leave_nothing_behind() -> None:
    server, seeing = make()
    async with v2025_caller(server) as caller:
        await caller.result(await caller.start("say"))
        await caller.ping()
        before = len(asyncio.all_tasks())
        for _ in range(30):
            await caller.result(await caller.start("say"))
        await caller.ping()
        assert len(asyncio.all_tasks()) <= before
        assert seeing.connections[0].state[PUSHES_KEY] == {}


MESSAGE: TypeAdapter[Any] = TypeAdapter(JSONRPCMessage)


class ManualReader:
    """A connection in memory that reads only when the test says so."""

    def __init__(self, read: Any, write: Any) -> None:
        self._read = read
        self._write = write

    async def say(self, message: Message) -> None:
        await self._write.send(SessionMessage(MESSAGE.validate_python({"jsonrpc": "2.0", **message})))

    async def hear(self) -> Message:
        item = await self._read.receive()
        return item.message.model_dump(by_alias=True, mode="json", exclude_none=True)


@asynccontextmanager
async def manual_reader(server: ExampleServer) -> AsyncGenerator[ManualReader]:
    lowlevel = lowlevel_of(server.mcp)
    async with create_client_server_memory_streams() as ((read, write), (server_read, server_write)):
        options = lowlevel.create_initialization_options()
        serving = asyncio.create_task(lowlevel.run(server_read, server_write, options, raise_exceptions=True))
        deaf = ManualReader(read, write)
        info = {"name": "deaf", "version": "1"}
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info}
        await deaf.say({"id": 0, "method": "initialize", "params": hello})
        await deaf.hear()
        await deaf.say({"method": "notifications/initialized"})
        yield deaf
        await write.aclose()
        await read.aclose()
        await serving


async def test_a_caller_that_stops_reading_blocks_no_other_caller() -> None:
    """Although it created the task, waits for it, and receives all its notifications."""
    server = ExampleServer()
    gate = add_gated(server)
    add_echo(server)

    @server.tasks.tool()
    async def talkative(task: TaskContext) -> str:
        await gate.pass_through(task)
        for done in range(100):
            await task.progress(done)
            await task.variables.set("done", done)
        return "said all"

    async with v2025_caller(server) as caller, manual_reader(server) as deaf:
        meta = {"progressToken": "t"}
        await deaf.say({"id": 1, "method": "tools/call", "params": {"name": "talkative", "task": {}, "_meta": meta}})
        created = await deaf.hear()
        task_id = created["result"]["task"]["taskId"]
        for number in range(2, 8):
            await deaf.say({"id": number, "method": "tasks/result", "params": {"taskId": task_id}})
        waiting = await caller.wait(task_id)
        await gate.started.wait()
        gate.open.set()
        assert text_of(await waiting.result()) == "said all"
        assert (await caller.get(task_id))["status"] == "completed"
        assert text_of(await caller.result(await caller.start("say", {"words": "next"}))) == "next"
        # When it reads again, it receives what it requested.
        answers: set[int] = set()
        while len(answers) < 6:
            message = await deaf.hear()
            if "id" in message:
                assert text_of(message["result"]) == "said all"
                answers.add(message["id"])


async def test_progress_that_could_not_be_sent_in_time_is_not_sent_after_the_end() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server), manual_reader(server) as deaf:
        params = {"name": "metered", "task": {}, "_meta": {"progressToken": "t"}}
        await deaf.say({"id": 1, "method": "tools/call", "params": params})
        task_id = (await deaf.hear())["result"]["task"]["taskId"]
        for done in range(1, 11):
            await meter.show(done)
        meter.finish()
        await ended(server, task_id)
        # Some notifications were in flight while the caller did not read. The rest are dropped.
        received = [await deaf.hear()]
        while received[-1]["method"] != "notifications/tasks/status":
            received.append(await deaf.hear())
        amounts = [one["params"]["progress"] for one in received[:-1]]
        assert amounts == sorted(set(amounts))
        assert 10 not in amounts
        assert received[-1]["params"]["status"] == "completed"


async def test_a_connection_that_is_closed_while_it_does_not_read_can_be_closed() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    ids: list[str] = []
    async with v2025_caller(server) as stays:
        async with manual_reader(server) as deaf:
            for number in range(1, 6):
                await deaf.say({"id": number, "method": "tools/call", "params": {"name": "gated", "task": {}}})
                created = await deaf.hear()
                ids.append(created["result"]["task"]["taskId"])
            await gate.started.wait()
            await deaf.say({"id": 9, "method": "tasks/result", "params": {"taskId": ids[-1]}})
            gate.open.set()
            await ended(server, ids[-1])
        await until(lambda: not background_tasks(), stays)
