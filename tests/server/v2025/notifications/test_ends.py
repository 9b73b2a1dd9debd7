"""What is pushed ends with its connection, and a caller that does not listen holds up nobody else."""

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
from tests.support.server.caller_v2025 import VERSION, calling, connected
from tests.support.server.example import Shop
from tests.support.server.tools import add_gated, text_of
from tests.support.server.transports import Message
from tests.support.server.transports_v2025 import g1_http, g1_serving
from tests.support.server.v2025.tools import ON_G1_WIRES, add_metered, add_saying, ended, until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


class Seeing:
    """Middleware that remembers the connections that calls came on."""

    def __init__(self) -> None:
        self.connections: list[Any] = []

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        connection = connection_of(ctx)
        if ctx.method == "tools/call" and connection not in self.connections:
            self.connections.append(connection)
        return await call_next(ctx)


def make() -> tuple[Shop, Seeing]:
    shop, seeing = Shop(), Seeing()
    shop.mcp.middleware.append(seeing)
    add_saying(shop)
    return shop, seeing


def jobs() -> set[str]:
    """The jobs that push something, or read it for those who do."""
    return {repr(job) for job in asyncio.all_tasks() if "StatusNotifier" in repr(job) or "_FollowedTask" in repr(job)}


@ON_G1_WIRES
async def test_a_connection_keeps_nothing_of_tasks_that_have_ended(way: str) -> None:
    shop, seeing = make()
    async with calling(shop, way) as caller:
        for _ in range(5):
            await caller.until(await caller.start("say"), "completed")
        await caller.ping()
        (connection,) = seeing.connections
        assert connection.state[PUSHES_KEY] == {}
        assert jobs() == set()


@ON_G1_WIRES
async def test_a_connection_that_closes_is_pushed_nothing_more_and_leaves_no_jobs(way: str) -> None:
    shop, seeing = make()
    gate = add_gated(shop)
    async with calling(shop) as stays:
        if way == "memory":
            async with calling(shop) as caller:
                ids = [await caller.start("gated") for _ in range(3)]
                await gate.begun.wait()
                assert seeing.connections[0].state[PUSHES_KEY].keys() == set(ids)
                assert len(jobs()) == 6
        else:
            async with g1_serving(shop.mcp) as serving:
                async with g1_http(serving) as wire, connected(wire) as caller:
                    ids = [await caller.start("gated") for _ in range(3)]
                    await gate.begun.wait()
                    assert len(jobs()) == 6
                    await wire.end()
                await until(lambda: not jobs(), stays)
        await until(lambda: not jobs(), stays)
        assert seeing.connections[0].state[PUSHES_KEY] == {}
        # The work goes on: it was its result that nobody waits for.
        assert not gate.stopped.is_set()
        gate.open.set()
        for task_id in ids:
            assert (await ended(shop, task_id, way)).task.status == "completed"


async def test_calls_and_results_over_and_over_leave_nothing_behind() -> None:
    shop, seeing = make()
    async with calling(shop) as caller:
        await caller.result(await caller.start("say"))
        await caller.ping()
        before = len(asyncio.all_tasks())
        for _ in range(30):
            await caller.result(await caller.start("say"))
        await caller.ping()
        assert len(asyncio.all_tasks()) <= before
        assert seeing.connections[0].state[PUSHES_KEY] == {}


MESSAGE: TypeAdapter[Any] = TypeAdapter(JSONRPCMessage)


class Deaf:
    """A connection in memory that reads only when it is told to."""

    def __init__(self, read: Any, write: Any) -> None:
        self._read = read
        self._write = write

    async def say(self, message: Message) -> None:
        await self._write.send(SessionMessage(MESSAGE.validate_python({"jsonrpc": "2.0", **message})))

    async def hear(self) -> Message:
        item = await self._read.receive()
        return item.message.model_dump(by_alias=True, mode="json", exclude_none=True)


@asynccontextmanager
async def deaf_to(shop: Shop) -> AsyncGenerator[Deaf]:
    lowlevel = lowlevel_of(shop.mcp)
    async with create_client_server_memory_streams() as ((read, write), (server_read, server_write)):
        options = lowlevel.create_initialization_options()
        serving = asyncio.create_task(lowlevel.run(server_read, server_write, options, raise_exceptions=True))
        deaf = Deaf(read, write)
        info = {"name": "deaf", "version": "1"}
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info}
        await deaf.say({"id": 0, "method": "initialize", "params": hello})
        await deaf.hear()
        await deaf.say({"method": "notifications/initialized"})
        yield deaf
        await write.aclose()
        await read.aclose()
        await serving


async def test_a_caller_that_stops_reading_holds_up_nobody_else() -> None:
    """Though it made the task, and waits for it, and is to be told of all that happens to it."""
    shop = Shop()
    gate = add_gated(shop)
    add_saying(shop)

    @shop.tasks.tool()
    async def talkative(task: TaskContext) -> str:
        await gate.pass_through(task)
        for done in range(100):
            await task.progress(done)
            await task.variables.set("done", done)
        return "said all"

    async with calling(shop) as caller, deaf_to(shop) as deaf:
        meta = {"progressToken": "t"}
        await deaf.say({"id": 1, "method": "tools/call", "params": {"name": "talkative", "task": {}, "_meta": meta}})
        created = await deaf.hear()
        task_id = created["result"]["task"]["taskId"]
        for number in range(2, 8):
            await deaf.say({"id": number, "method": "tasks/result", "params": {"taskId": task_id}})
        waiting = await caller.wait(task_id)
        await gate.begun.wait()
        gate.open.set()
        assert text_of(await waiting.result()) == "said all"
        assert (await caller.get(task_id))["status"] == "completed"
        assert text_of(await caller.result(await caller.start("say", {"words": "next"}))) == "next"
        # When it listens again, it gets to hear what it asked for.
        answers: set[int] = set()
        while len(answers) < 6:
            message = await deaf.hear()
            if "id" in message:
                assert text_of(message["result"]) == "said all"
                answers.add(message["id"])


async def test_progress_that_nobody_could_be_told_of_in_time_is_not_told_after_the_end() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop), deaf_to(shop) as deaf:
        params = {"name": "metered", "task": {}, "_meta": {"progressToken": "t"}}
        await deaf.say({"id": 1, "method": "tools/call", "params": params})
        task_id = (await deaf.hear())["result"]["task"]["taskId"]
        for done in range(1, 11):
            await meter.show(done)
        meter.finish()
        await ended(shop, task_id)
        # Some of it was under way when nobody listened. The rest came too late.
        heard = [await deaf.hear()]
        while heard[-1]["method"] != "notifications/tasks/status":
            heard.append(await deaf.hear())
        told = [one["params"]["progress"] for one in heard[:-1]]
        assert told == sorted(set(told))
        assert 10 not in told
        assert heard[-1]["params"]["status"] == "completed"


async def test_a_connection_that_is_closed_while_it_does_not_read_can_be_closed() -> None:
    shop = Shop()
    gate = add_gated(shop)
    ids: list[str] = []
    async with calling(shop) as stays:
        async with deaf_to(shop) as deaf:
            for number in range(1, 6):
                await deaf.say({"id": number, "method": "tools/call", "params": {"name": "gated", "task": {}}})
                created = await deaf.hear()
                ids.append(created["result"]["task"]["taskId"])
            await gate.begun.wait()
            await deaf.say({"id": 9, "method": "tasks/result", "params": {"taskId": ids[-1]}})
            gate.open.set()
            await ended(shop, ids[-1])
        await until(lambda: not jobs(), stays)
