"""Tests for reloading a file of workflows: running tasks continue, and faulty changes are ignored."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult

from raincheck.client import TaskClient
from raincheck.engine import Engine
from raincheck.errors import StoreUnavailable
from raincheck.testing.clock import FakeClock
from raincheck.workflows import WorkflowTasks
from raincheck.workflows.serve import POLL_INTERVAL
from tests.support.cli.workflow_server import FLOWS, workflow_text, write_flows

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("folder")]


class LookClock(FakeClock):
    """A clock that reports when the file was checked: the watcher sleeps until the next check."""

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
        self.reported: list[str] = []

    async def look(self, times: int = 2) -> str:
        """Let the watcher check twice, so that it sees a finished write. Returns what it reported."""
        before = len(self.reported)
        for _ in range(times):
            await self.clock.asleep.get()
            # The watcher sleeps as soon as this resumes.
            await asyncio.sleep(0)
            self.clock.advance(POLL_INTERVAL)
        await self.clock.asleep.get()
        self.clock.asleep.put_nowait(None)
        return "\n".join(self.reported[before:])

    async def write(self, text: str, name: str = "flows.yaml") -> str:
        """Rewrite a file, and return what the watcher reported."""
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
    watching = asyncio.ensure_future(tasks.watch(file.clock, file.reported.append))
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


async def test_new_calls_use_the_new_definition_and_running_tasks_the_old() -> None:
    async with watched(FLOWS) as (file, client):
        running = await client.call("hold")
        assert running.task_ref is not None
        reported = await file.write(FLOWS.replace("set: old", "set: new"))
        assert reported == "reloaded flows.yaml: changed: hold"
        let_go()
        assert await value(running.result()) == {"result": "old"}
        assert await value(client.call_tool("hold")) == {"result": "new"}


async def test_added_and_removed_workflows_change_the_tool_list_and_running_tasks_continue() -> None:
    async with watched(FLOWS) as (file, client):
        running = await client.call("hold")
        reported = await file.write(workflow_text("other"))
        assert reported.endswith("new: other; removed: release, confirm, hold, fail")
        assert await names(client) == ["other"]
        let_go()
        assert await value(running.result()) == {"result": "old"}
        assert await value(client.call_tool("other")) == {"name": "other"}


async def test_a_change_with_faults_is_reported_and_ignored() -> None:
    async with watched(workflow_text("one")) as (file, client):
        reported = await file.write("raincheck: 1\nworkflows:\n  one:\n    steps: [{id: a, set: 1}, {id: a, set: 2}]\n")
        assert reported.startswith("flows.yaml has changed but is invalid, so the previous workflows stay")
        assert "flows.yaml:4: " in reported
        assert await value(client.call_tool("one")) == {"name": "one"}
        assert (await file.write(workflow_text("two"))).endswith("new: two; removed: one")
        assert await names(client) == ["two"]


async def test_a_change_that_can_not_be_served_is_ignored() -> None:
    async with watched(workflow_text("one")) as (file, client):
        reported = await file.write(workflow_text("two", input="{raincheck_request: {type: string}}"))
        assert "'raincheck_request' is a reserved name: rename the argument" in reported
        assert await names(client) == ["one"]


async def test_a_changed_description_is_reloaded() -> None:
    async with watched(workflow_text("one", version='"1"')) as (file, client):
        assert (await file.write(workflow_text("one", version='"1"', description="Does it."))).endswith("changed: one")
        (tool,) = (await (await client.connected()).list_tools()).tools
        assert tool.description == "Does it."


@pytest.fixture
def of_one(folder: Path) -> None:
    (folder / "flows").mkdir()
    write_flows(workflow_text("one"), "flows/one.yaml")


@pytest.mark.usefixtures("of_one")
async def test_files_can_be_added_to_and_removed_from_a_folder() -> None:
    async with watched(path="flows") as (file, client):
        assert (await file.write(workflow_text("two"), "flows/two.yaml")).endswith("new: two")
        remove("flows/one.yaml")
        assert (await file.look()).endswith("removed: one")
        reported = await file.write(workflow_text("two"), "flows/three.yaml")
        assert "a workflow with this name is in flows/three.yaml too" in reported
        assert await names(client) == ["two"]


async def test_a_deleted_file_leaves_its_workflows_unchanged() -> None:
    async with watched(workflow_text("one")) as (file, client):
        remove("flows.yaml")
        assert "there is no file flows.yaml" in await file.look()
        assert await names(client) == ["one"]


class Broken(Exception):
    """An unexpected exception."""


async def test_after_a_failed_reload_the_next_change_is_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: Path) -> None:
        raise Broken(str(path))

    async with watched(workflow_text("one")) as (file, client):
        with monkeypatch.context() as broken:
            broken.setattr("raincheck.workflows.serve.load_workflow_files", fail)
            assert await file.write(workflow_text("two")) == ""
        assert "workflows not reloaded, the previous ones stay in service (file flows.yaml)" in caplog.text
        assert (await file.write(workflow_text("three"))).endswith("new: three; removed: one")
        assert await names(client) == ["three"]


async def test_an_unavailable_store_does_not_prevent_a_reload(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def recall(engine: Engine) -> None:
        raise StoreUnavailable("tasks.db", f"it is away for {engine.namespace}")

    async with watched(workflow_text("one")) as (file, client):
        monkeypatch.setattr(Engine, "sync_definitions", recall)
        assert (await file.write(workflow_text("two"))).endswith("new: two; removed: one")
        assert "workflow definitions not stored (file flows.yaml)" in caplog.text
        assert await names(client) == ["two"]
        assert (await file.write(workflow_text("three"))).endswith("new: three; removed: two")


async def test_unsafe_steps_are_reported_at_the_start_and_after_a_reload() -> None:
    unsafe = "raincheck: 1\nworkflows: {flow: {steps: [{id: NAME, run: {argv: [ls], unsafe: true}}]}}\n"
    write_later(unsafe.replace("NAME", "one"))
    tasks, reported = WorkflowTasks(Path("flows.yaml")), list[str]()
    await tasks.run_with_reload(asyncio.sleep(0), reported.append)
    assert "`unsafe: true` get values that no rule checks (flow.one)" in reported[0]
    async with watched(workflow_text("one")) as (file, _):
        await file.write(unsafe.replace("NAME", "two"))
        assert "(flow.two)" in file.reported[-1]


async def test_a_change_before_the_start_is_loaded() -> None:
    write_later(workflow_text("one"))
    tasks, file = WorkflowTasks(Path("flows.yaml")), Watched()
    watching = asyncio.ensure_future(tasks.watch(file.clock, file.reported.append))
    assert (await file.write(workflow_text("two"))).endswith("new: two; removed: one")
    assert (await file.write(workflow_text("three"))).endswith("new: three; removed: two")
    watching.cancel()


async def test_a_file_is_reloaded_only_after_it_was_written_completely() -> None:
    async with watched(workflow_text("one")) as (file, _):
        for size in range(1, 4):
            write_later(workflow_text("two") + "#" * size)
            assert await file.look(times=1) == ""
        assert (await file.look(times=1)).endswith("new: two; removed: one")
        assert await file.look() == ""


def test_servers_of_files_of_the_same_name_keep_their_tasks_apart(folder: Path) -> None:
    for name in ("a", "b"):
        Path(name).mkdir()
        write_flows(workflow_text("one"), f"{name}/flows.yaml")
    found = [WorkflowTasks(folder / name / "flows.yaml") for name in ("a", "b")]
    assert [(one.server.name, one.options.namespace) for one in found] == [("flows", "a/flows"), ("flows", "b/flows")]
    assert str(folder / "a") not in sys.path


async def test_workflows_are_tools_of_a_server_that_has_other_tools_too() -> None:
    write_flows(workflow_text("one"))
    server = MCPServer("reports")

    @server.tool()
    def other() -> str:
        return "ready"

    tasks = WorkflowTasks("flows.yaml", "memory:", server=server, namespace="shared")
    assert (tasks.server, tasks.options.namespace) == (server, "shared")
    async with TaskClient(server) as client:
        assert sorted(await names(client)) == ["one", "other"]
        assert await value(client.call_tool("one")) == {"name": "one"}
        assert await value(client.call_tool("other")) == {"result": "ready"}
