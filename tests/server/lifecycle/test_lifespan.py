"""The engine starts after its server's own lifespan, stops before it, and runs only once at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from raincheck import TaskContext, Tasks, open_store
from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Task
from raincheck.errors import ConfigurationError, RaincheckError, StoreUnavailable
from raincheck.stores.requests import TaskQuery
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.transports import in_memory

pytestmark = pytest.mark.anyio


class Enough(BaseModel):
    is_it: bool


@dataclass
class Diary:
    """What happened, in order."""

    lines: list[str] = field(default_factory=list)


def server_with_lifespan(diary: Diary, store: str | Path = "memory:") -> ExampleServer:
    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[dict[str, str]]:
        diary.lines.append(f"in, {_is_running(server)}")
        try:
            yield {"database": "open"}
        finally:
            diary.lines.append(f"out, {_is_running(server)}")

    server = ExampleServer(store, server={"lifespan": lifespan})
    return server


def _is_running(server: ExampleServer) -> str:
    try:
        return "engine runs" if server.tasks.engine else ""
    except ConfigurationError:
        return "no engine"


async def up(caller: Caller) -> None:
    """Until the server has started."""
    await caller.request("server/discover")


async def start_and_stop(server: ExampleServer) -> None:
    app = server.mcp.streamable_http_app()
    async with app.router.lifespan_context(app):
        pass


async def tasks_in(store_name: Path) -> list[Task]:
    async with open_store(store_name) as store:
        page = await store.list_tasks(TaskQuery(Scope.for_namespace("shop")), now=SystemClock().now(), limit=10)
        return list(page.tasks)


async def phase_of(server: ExampleServer, phase: Phase) -> None:
    """Until the one task of a server that runs has this phase."""
    (task,) = (await server.tasks.engine.list_tasks()).tasks
    assert (await server.tasks.engine.wait(task.id, until=lambda task: task.phase is phase)).task.phase is phase


async def test_the_servers_own_lifespan_is_entered_before_the_engine_and_left_after_it() -> None:
    diary = Diary()
    async with server_with_lifespan(diary).open() as caller:
        await up(caller)
        assert diary.lines == ["in, no engine"]
    assert diary.lines == ["in, no engine", "out, no engine"]


@pytest.mark.parametrize("way", ["tool", "enable"])
@pytest.mark.parametrize("opening", ["open", "open_http"])
async def test_the_lifespan_state_reaches_the_bodies_of_tasks(way: str, opening: str) -> None:
    server = server_with_lifespan(Diary())

    async def look(ctx: Context[dict[str, str], Any]) -> str:
        return ctx.request_context.lifespan_context["database"]

    if way == "tool":
        server.tasks.tool(look)
    else:
        server.mcp.add_tool(look)
        server.tasks.enable("look")
    async with getattr(server, opening)() as caller:
        result = await caller.result(await caller.start("look"))
        assert result["content"][0]["text"] == "open"


async def test_a_body_that_stops_with_the_server_still_has_the_lifespan_state() -> None:
    diary = Diary()
    server = server_with_lifespan(diary)
    began = asyncio.Event()

    @server.tasks.tool()
    async def wait_for_ever(ctx: Context[dict[str, str], Any]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            diary.lines.append(ctx.request_context.lifespan_context["database"])

    async with server.open() as caller:
        await caller.start("wait_for_ever")
        await began.wait()
    assert diary.lines == ["in, no engine", "open", "out, no engine"]


async def test_a_lifespan_that_fails_starts_no_engine() -> None:
    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[None]:
        raise OSError("no database")
        yield

    server = ExampleServer(server={"lifespan": lifespan})
    with pytest.raises(OSError, match="no database"):
        await start_and_stop(server)
    assert _is_running(server) == "no engine"


async def test_the_engine_starts_with_the_server_and_not_with_the_first_request(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    gate = asyncio.Event()

    def build() -> ExampleServer:
        server = ExampleServer(file)

        @server.tasks.tool()
        async def wait(task: TaskContext) -> int:
            await gate.wait()
            return task.attempt

        return server

    async with build().open() as caller:
        await caller.start("wait")
    assert [task.phase for task in await tasks_in(file)] == [Phase.QUEUED]
    gate.set()
    async with (after := build()).open() as caller:
        await up(caller)
        await phase_of(after, Phase.COMPLETED)


async def test_a_parked_task_of_an_enabled_tool_resumes_in_the_next_process_without_any_request(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tasks.db"

    def build() -> ExampleServer:
        server = ExampleServer(file)
        server.tasks.enable("rest_*")

        @server.mcp.tool()
        async def rest_a_while(ctx: Context[Any, Any]) -> str:
            return (await ctx.elicit("Enough?", Enough)).action

        return server

    async with (before := build()).open() as caller:
        task_id = await caller.start("rest_a_while")
        await caller.until(task_id, "input_required")
        await phase_of(before, Phase.PARKED)
        await caller.update(task_id, {"elicit-0": {"action": "decline"}})
    async with (after := build()).open() as caller:
        await up(caller)
        await phase_of(after, Phase.COMPLETED)


async def test_a_stopping_server_hands_running_bodies_back(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    server = ExampleServer(file)
    began = asyncio.Event()

    @server.tasks.tool()
    async def wait_for_ever() -> None:
        began.set()
        await asyncio.Event().wait()

    async with server.open() as caller:
        await caller.start("wait_for_ever")
        await began.wait()
    (task,) = await tasks_in(file)
    assert (task.phase, task.attempt) == (Phase.QUEUED, None)


async def test_several_connections_share_one_engine_until_the_last_has_left() -> None:
    server = ExampleServer()
    server.tasks.tool(name="one")(_one)
    async with AsyncExitStack() as last:
        async with in_memory(server.mcp) as first_wire:
            await up(Caller(first_wire))
            engine = server.tasks.engine
            second = Caller(await last.enter_async_context(in_memory(server.mcp)))
            await up(second)
            assert server.tasks.engine is engine
            task_id = await Caller(first_wire).start("one")
        assert server.tasks.engine is engine
        assert (await second.result(task_id))["structuredContent"] == {"result": 1}
        assert (await second.result(await second.start("one")))["structuredContent"] == {"result": 1}
    assert _is_running(server) == "no engine"


async def test_simultaneous_connections_share_one_engine() -> None:
    server = ExampleServer()
    engines: set[int] = set()

    async def connect() -> None:
        async with in_memory(server.mcp) as transport:
            await up(Caller(transport))
            engines.add(id(server.tasks.engine))
            await all_in.wait()

    all_in = asyncio.Barrier(5)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(connect())
    assert len(engines) == 1
    assert _is_running(server) == "no engine"


async def test_each_connection_that_ends_removes_its_own_state() -> None:
    made = iter("ab")

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[str]:
        yield next(made)

    server = ExampleServer(server={"lifespan": lifespan})

    @server.tasks.tool()
    async def look(ctx: Context[str, Any]) -> str:
        return ctx.request_context.lifespan_context

    async with in_memory(server.mcp) as transport:
        caller = Caller(transport)
        await up(caller)
        async with in_memory(server.mcp) as another:
            await up(Caller(another))
        assert (await caller.result(await caller.start("look")))["content"][0]["text"] == "a"


def one_call(server: ExampleServer) -> Callable[[], Any]:
    async def call() -> Any:
        async with server.open() as caller:
            return (await caller.result(await caller.start("one")))["structuredContent"]

    return call


async def _one() -> int:
    return 1


@pytest.mark.parametrize("store", ["memory:", "tasks.db"])
def test_a_server_can_run_again_and_in_another_event_loop(store: str, tmp_path: Path) -> None:
    server = ExampleServer(store if store == "memory:" else tmp_path / store)
    server.tasks.tool(name="one")(_one)
    call = one_call(server)

    async def call_twice() -> list[Any]:
        return [await call(), await call()]

    assert asyncio.run(call_twice()) == [{"result": 1}, {"result": 1}]
    assert asyncio.run(call_twice()) == [{"result": 1}, {"result": 1}]


async def test_a_running_server_can_not_be_entered_from_another_event_loop() -> None:
    server = ExampleServer()
    server.tasks.tool(name="one")(_one)
    async with server.open() as caller:
        await up(caller)
        with pytest.raises(ConfigurationError, match="already run in another event loop"):
            await asyncio.to_thread(asyncio.run, start_and_stop(server))
        assert (await caller.result(await caller.start("one")))["structuredContent"] == {"result": 1}


async def test_a_store_that_can_not_be_opened_fails_the_start_and_leaves_nothing_open(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    diary = Diary()
    server = server_with_lifespan(diary, folder / "tasks.db")
    server.tasks.tool(name="one")(_one)
    with pytest.raises(RaincheckError, match="later"):
        await start_and_stop(server)
    assert _is_running(server) == "no engine"
    assert diary.lines == ["in, no engine", "out, no engine"]
    await asyncio.to_thread(folder.mkdir)
    assert await one_call(server)() == {"result": 1}


async def test_a_file_that_is_no_store_fails_the_start_over_http_too(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    await asyncio.to_thread(file.write_text, "no database at all, but a text long enough to be taken for one" * 20)
    server = ExampleServer(file)
    with pytest.raises(RaincheckError, match=r"tasks\.db"):
        await start_and_stop(server)
    assert _is_running(server) == "no engine"


async def test_a_store_that_is_not_there_is_named_in_the_error() -> None:
    server = ExampleServer("postgresql://127.0.0.1:1/tasks")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/tasks: the database can't be reached"):
        await start_and_stop(server)


async def test_a_server_that_only_serves_runs_no_tasks(tmp_path: Path) -> None:
    def build(*, works: bool) -> ExampleServer:
        server = ExampleServer(tmp_path / "tasks.db", works=works)
        server.tasks.tool(name="one")(_one)
        return server

    async with build(works=False).open() as caller:
        task_id = await caller.start("one")
        assert (await caller.get(task_id))["status"] == "working"
        async with build(works=True).open():
            assert (await caller.result(task_id))["structuredContent"] == {"result": 1}


async def test_a_lifespan_that_is_cancelled_closes_the_store(tmp_path: Path) -> None:
    """A server is often stopped by cancelling what runs it, and its file must be free then."""
    server = ExampleServer(tmp_path / "tasks.db")
    began = asyncio.Event()

    @server.tasks.tool()
    async def wait_for_ever() -> None:
        began.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        async with server.open() as caller:
            await caller.start("wait_for_ever")
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await began.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert _is_running(server) == "no engine"
    assert [task.phase for task in await tasks_in(tmp_path / "tasks.db")] == [Phase.QUEUED]


async def test_the_tasks_of_another_server_on_the_same_file_are_left_alone(tmp_path: Path) -> None:
    serving = ExampleServer(tmp_path / "tasks.db", works=False)
    serving.tasks.tool(name="one")(_one)
    others = MCPServer[Any]("another")
    Tasks(others, tmp_path / "tasks.db", settings=QUICK).tool(name="one")(_one)
    async with serving.open() as caller, in_memory(others) as transport:
        task_id = await caller.start("one")
        another = Caller(transport)
        await another.result(await another.start("one"))
        assert (await caller.get(task_id))["status"] == "working"
