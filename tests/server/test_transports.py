"""Tasks behave the same on every transport of the SDK, and do not disturb its connections."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Mount

from raincheck import TaskContext
from tests.support import ROOT
from tests.support.server.caller_v2026 import ASKABLE, TASKS, Caller, Refused
from tests.support.server.example import ExampleServer
from tests.support.server.transports import HttpTransport, StdioTransport, in_memory, over_http, over_stdio

pytestmark = pytest.mark.anyio

SERVER = ROOT / "examples/conformance.py"


class Sure(BaseModel):
    sure: bool


def build(store: str | Path = "memory:") -> ExampleServer:
    server = ExampleServer(store)

    @server.tasks.tool
    async def ask(task: TaskContext) -> str:
        await task.progress(1, 2, "asking")
        return (await task.elicit("Sure?", Sure)).action

    @server.tasks.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    return server


async def go_through_it_all(caller: Caller) -> None:
    """Create, listen, read, answer, cancel."""
    task_id = await caller.start("ask")
    seen: list[str] = []
    async with caller.listening(task_id) as pushed:
        async for task in pushed:
            seen.append(task["status"])
            if task["status"] == "input_required":
                await caller.update(task_id, {"elicit-0": {"action": "accept", "content": {"sure": True}}})
    assert seen[-1] == "completed"
    assert "input_required" in seen
    assert (await caller.get(task_id))["result"]["content"][0]["text"] == "accept"
    waiting = await caller.start("wait")
    async with caller.listening(waiting) as pushed:
        assert (await anext(pushed))["status"] == "working"
        await caller.cancel(waiting)
        assert [task["status"] async for task in pushed][-1] == "cancelled"


async def test_tasks_work_in_memory() -> None:
    async with build().open() as caller:
        await go_through_it_all(caller)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"json_response": True},
    {"stateless_http": True},
    {"json_response": True, "stateless_http": True},
]


@pytest.mark.parametrize("options", OPTIONS)
async def test_tasks_work_over_http(options: dict[str, Any]) -> None:
    async with over_http(build().mcp.streamable_http_app(**options)) as transport:
        await go_through_it_all(Caller(transport))


async def test_tasks_work_in_a_mounted_application_with_its_own_lifespan() -> None:
    server = build()
    inner = server.mcp.streamable_http_app(streamable_http_path="/")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with server.mcp.session_manager.run():
            yield

    app = Starlette(routes=[Mount("/tools", inner)], lifespan=lifespan)
    async with over_http(app, "/tools/") as transport:
        await go_through_it_all(Caller(transport))


async def test_tasks_work_mounted_in_fastapi_beside_other_routes() -> None:
    server = build()
    inner = server.mcp.streamable_http_app(streamable_http_path="/")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with server.mcp.session_manager.run():
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/health")
    async def health() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction] - the route is
        return {"status": "well"}

    app.mount("/tools", inner)
    async with over_http(app, "/tools/") as transport:
        await go_through_it_all(Caller(transport))
        answer = await transport.client.get(transport.url.replace("/tools/", "/health"))
        assert answer.json() == {"status": "well"}


async def test_two_servers_with_tasks_mounted_in_one_application() -> None:
    shops = [build(), build()]
    routes = [
        Mount(f"/{n}", server.mcp.streamable_http_app(streamable_http_path="/")) for n, server in enumerate(shops)
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with shops[0].mcp.session_manager.run(), shops[1].mcp.session_manager.run():
            yield

    async with over_http(Starlette(routes=routes, lifespan=lifespan), "/0/") as transport:
        await go_through_it_all(Caller(transport))
        await go_through_it_all(Caller(HttpTransport(transport.url.replace("/0/", "/1/"), transport.client)))


async def test_a_task_made_on_one_connection_is_answered_on_another() -> None:
    server = build()
    async with in_memory(server.mcp) as first, in_memory(server.mcp) as second:
        task_id = await Caller(first).start("ask")
        there = Caller(second)
        await there.until(task_id, "input_required")
        await there.update(task_id, {"elicit-0": {"action": "decline"}})
        assert (await there.result(task_id))["content"][0]["text"] == "decline"


async def test_tasks_work_over_stdio(tmp_path: Path) -> None:
    """A long call does not block others, and a task outlives the process that started it."""
    arguments = ("--transport", "stdio", "--store", str(tmp_path / "tasks.db"))
    async with over_stdio(SERVER, *arguments) as transport:
        caller = Caller(transport)
        fallback_caller = Caller(transport, capabilities=ASKABLE)
        long_call = asyncio.create_task(fallback_caller.call("slow_compute", {"seconds": 0.5, "label": "long"}))
        assert (await caller.call("greet", {"name": "Ann"}))["content"][0]["text"] == "Hello, Ann!"

        deleting = await caller.start("confirm_delete", {"filename": "a.txt"})
        async with caller.listening(deleting) as pushed:
            async for task in pushed:
                for key in task.get("inputRequests", {}):
                    answer = {"action": "accept", "content": {"confirm": True}}
                    await caller.update(deleting, {key: answer})
        assert (await caller.result(deleting))["content"][0]["text"] == "a.txt is deleted"

        sleeping = await caller.start("slow_compute", {"seconds": 600, "label": "never"})
        await caller.cancel(sleeping)
        assert (await caller.until(sleeping))["status"] == "cancelled"
        assert (await long_call)["content"][0]["text"] == "long: done after 0.5 s"

        unfinished = await caller.start("confirm_delete", {"filename": "b.txt"})
        running = await caller.start("slow_compute", {"seconds": 1.5, "label": "goes on"})
        await caller.until(unfinished, "input_required")
    # The end of its input ended it.
    assert transport.process.returncode == 0

    async with over_stdio(SERVER, *arguments) as transport:
        caller = Caller(transport)
        await caller.update(unfinished, {"elicit-0": {"action": "decline"}})
        assert (await caller.result(unfinished))["content"][0]["text"] == "b.txt is kept"
        assert (await caller.result(running))["content"][0]["text"] == "goes on: done after 1.5 s"


async def test_a_server_whose_caller_disconnects_during_a_call_stops_cleanly(tmp_path: Path) -> None:
    arguments = ("--transport", "stdio", "--store", str(tmp_path / "tasks.db"))
    async with over_stdio(SERVER, *arguments) as transport:
        fallback_caller = Caller(transport, capabilities=ASKABLE)
        call = asyncio.create_task(fallback_caller.call("slow_compute", {"seconds": 600, "label": "never"}))
        assert "tools" in await fallback_caller.request("tools/list")
        _close(transport)
        assert await asyncio.wait_for(transport.process.wait(), 60) == 0
        with pytest.raises(Refused, match="Connection closed"):
            await call


def _close(transport: StdioTransport) -> None:
    assert transport.process.stdin is not None
    transport.process.stdin.close()


async def test_a_waiting_call_does_not_block_others_on_its_connection() -> None:
    server = build()
    async with server.open(capabilities=ASKABLE) as fallback_caller:
        waiting = asyncio.create_task(fallback_caller.call("wait"))
        assert "tools" in await fallback_caller.request("tools/list")
        asked = await fallback_caller.call("ask")
        assert asked["resultType"] == "input_required"
        assert not waiting.done()
        waiting.cancel()


async def test_a_closed_stream_does_not_end_its_task() -> None:
    server = build()
    async with server.open_http() as caller:
        task_id = await caller.start("ask")
        async with caller.listening(task_id) as pushed:
            await anext(pushed)
        assert (await caller.until(task_id, "input_required"))["status"] == "input_required"
        await caller.update(task_id, {"elicit-0": {"action": "cancel"}})
        assert (await caller.result(task_id))["content"][0]["text"] == "cancel"


async def test_capabilities_are_read_from_each_request_and_not_from_the_connection() -> None:
    server = build()
    async with in_memory(server.mcp) as transport:
        with_tasks, without = (
            Caller(transport, capabilities={**TASKS, **ASKABLE}),
            Caller(transport, capabilities=ASKABLE),
        )
        assert (await with_tasks.call("ask"))["resultType"] == "task"
        assert (await without.call("ask"))["resultType"] == "input_required"
        assert (await with_tasks.call("ask"))["resultType"] == "task"
