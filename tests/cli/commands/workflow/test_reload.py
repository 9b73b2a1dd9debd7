"""A file of workflows that changes while it is served: what runs goes on, what is new is there, faults do nothing."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from raincheck.client import TaskClient
from raincheck.engine import Engine
from raincheck.errors import StoreUnavailable
from raincheck.testing.clock import FakeClock
from raincheck.workflows.serve import POLL_INTERVAL, WorkflowTasks
from tests.support.cli.workflow_server import FLOWS, a_flow, write_flows

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("folder"), pytest.mark.timeout(60)]


class LookClock(FakeClock):
    """Says when the file has been looked at: whoever looks sleeps until the next time."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep: asyncio.Queue[None] = asyncio.Queue()

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        self.asleep.put_nowait(None)
        return super().sleep(seconds)


class Watched:
    """A server of a file that is watched."""

    def __init__(self) -> None:
        self.clock = LookClock()
        self.told: list[str] = []

    async def look(self, times: int = 2) -> str:
        """Have it looked at: twice, so that it is seen that nobody writes any more. What is told of that."""
        before = len(self.told)
        for _ in range(times):
            await self.clock.asleep.get()
            # It sleeps as soon as this goes on.
            await asyncio.sleep(0)
            self.clock.advance(POLL_INTERVAL)
        await self.clock.asleep.get()
        self.clock.asleep.put_nowait(None)
        return "\n".join(self.told[before:])

    async def write(self, text: str, name: str = "flows.yaml") -> str:
        """Write a file anew, and return what is told of that."""
        write_later(text, name)
        return await self.look()


def write_later(text: str, name: str = "flows.yaml") -> None:
    """Write a file so that it is seen, however quick this machine is, and however coarse its clock."""
    before = Path(name).stat().st_mtime_ns if Path(name).exists() else 0
    write_flows(text, name)
    os.utime(name, ns=(before + 10**9, before + 10**9))


def let_go() -> None:
    Path("go").touch()


def remove(name: str) -> None:
    Path(name).unlink()


@asynccontextmanager
async def watched(text: str | None = None, path: str = "flows.yaml") -> AsyncGenerator[tuple[Watched, TaskClient]]:
    if text is not None:
        write_flows(text, path)
    tasks = WorkflowTasks(Path(path))
    tasks.configure(store="memory:")
    file = Watched()
    watching = asyncio.ensure_future(tasks.watch(file.clock, file.told.append))
    try:
        async with TaskClient(tasks.server) as client:
            yield file, client
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def names(client: TaskClient) -> list[str]:
    tools = (await (await client.connected()).list_tools()).tools
    return [tool.name for tool in tools]


async def value(result: Awaitable[CallToolResult]) -> object:
    return (await result).structured_content


async def test_new_calls_get_the_new_definition_and_what_runs_goes_on_with_the_old() -> None:
    async with watched(FLOWS) as (file, client):
        running = await client.call("hold")
        assert running.task_ref is not None
        told = await file.write(FLOWS.replace("set: old", "set: new"))
        assert told == "flows.yaml has changed, and is used as it is now: changed: hold"
        let_go()
        assert await value(running.result()) == {"result": "old"}
        assert await value(client.call_tool("hold")) == {"result": "new"}


async def test_what_is_added_and_removed_is_listed_so_and_what_runs_goes_on() -> None:
    async with watched(FLOWS) as (file, client):
        running = await client.call("hold")
        told = await file.write(a_flow("other"))
        assert told.endswith("new: other; gone: release, confirm, hold, fail")
        assert await names(client) == ["other"]
        let_go()
        assert await value(running.result()) == {"result": "old"}
        assert await value(client.call_tool("other")) == {"name": "other"}


async def test_a_change_with_faults_is_told_and_changes_nothing() -> None:
    async with watched(a_flow("one")) as (file, client):
        told = await file.write("raincheck: 1\nworkflows:\n  one:\n    steps: [{id: a, set: 1}, {id: a, set: 2}]\n")
        assert told.startswith("flows.yaml has changed, and can't be used as it is now, so the workflows stay")
        assert "flows.yaml:4: " in told
        assert await value(client.call_tool("one")) == {"name": "one"}
        assert (await file.write(a_flow("two"))).endswith("new: two; gone: one")
        assert await names(client) == ["two"]


async def test_a_change_that_can_not_be_served_changes_nothing_either() -> None:
    async with watched(a_flow("one")) as (file, client):
        told = await file.write(a_flow("two", input="{raincheck_request: {type: string}}"))
        assert "'raincheck_request' is our own name: give the argument another" in told
        assert await names(client) == ["one"]


async def test_a_description_alone_is_a_change_too() -> None:
    async with watched(a_flow("one", version='"1"')) as (file, client):
        assert (await file.write(a_flow("one", version='"1"', description="Does it."))).endswith("changed: one")
        (tool,) = (await (await client.connected()).list_tools()).tools
        assert tool.description == "Does it."


@pytest.fixture
def of_one(folder: Path) -> None:
    (folder / "flows").mkdir()
    write_flows(a_flow("one"), "flows/one.yaml")


@pytest.mark.usefixtures("of_one")
async def test_files_come_and_go_in_a_folder() -> None:
    async with watched(path="flows") as (file, client):
        assert (await file.write(a_flow("two"), "flows/two.yaml")).endswith("new: two")
        remove("flows/one.yaml")
        assert (await file.look()).endswith("gone: one")
        told = await file.write(a_flow("two"), "flows/three.yaml")
        assert "a workflow of this name is in flows/three.yaml too" in told
        assert await names(client) == ["two"]


async def test_a_file_that_vanishes_leaves_its_workflows_as_they_were() -> None:
    async with watched(a_flow("one")) as (file, client):
        remove("flows.yaml")
        assert "there is no file flows.yaml" in await file.look()
        assert await names(client) == ["one"]


class Broken(Exception):
    """Something that nobody thought of."""


async def test_whatever_goes_wrong_with_a_change_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: Path) -> None:
        raise Broken(str(path))

    async with watched(a_flow("one")) as (file, client):
        with monkeypatch.context() as broken:
            broken.setattr("raincheck.workflows.serve.load_workflow_files", fail)
            assert await file.write(a_flow("two")) == ""
        assert "flows.yaml has changed, and can't be read" in caplog.text
        assert (await file.write(a_flow("three"))).endswith("new: three; gone: one")
        assert await names(client) == ["three"]


async def test_a_store_that_is_away_does_not_keep_a_change_from_being_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def recall(engine: Engine) -> None:
        raise StoreUnavailable("tasks.db", f"it is away for {engine.namespace}")

    async with watched(a_flow("one")) as (file, client):
        monkeypatch.setattr(Engine, "sync_definitions", recall)
        assert (await file.write(a_flow("two"))).endswith("new: two; gone: one")
        assert "what flows.yaml says now can't be kept yet" in caplog.text
        assert await names(client) == ["two"]
        assert (await file.write(a_flow("three"))).endswith("new: three; gone: two")


async def test_a_change_before_anything_runs_is_taken_too() -> None:
    write_later(a_flow("one"))
    tasks, file = WorkflowTasks(Path("flows.yaml")), Watched()
    watching = asyncio.ensure_future(tasks.watch(file.clock, file.told.append))
    assert (await file.write(a_flow("two"))).endswith("new: two; gone: one")
    assert (await file.write(a_flow("three"))).endswith("new: three; gone: two")
    watching.cancel()


async def test_a_file_that_is_being_written_is_left_until_it_is_done() -> None:
    async with watched(a_flow("one")) as (file, _):
        for size in range(1, 4):
            write_later(a_flow("two") + "#" * size)
            assert await file.look(times=1) == ""
        assert (await file.look(times=1)).endswith("new: two; gone: one")
        assert await file.look() == ""


def test_servers_of_files_of_the_same_name_keep_their_tasks_apart(folder: Path) -> None:
    for name in ("a", "b"):
        Path(name).mkdir()
        write_flows(a_flow("one"), f"{name}/flows.yaml")
    found = [WorkflowTasks(folder / name / "flows.yaml") for name in ("a", "b")]
    assert [(one.server.name, one.options.namespace) for one in found] == [("flows", "a/flows"), ("flows", "b/flows")]
    assert str(folder / "a") in sys.path
