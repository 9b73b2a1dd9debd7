"""Tests for files of workflows with `raincheck serve` and `raincheck worker`, on every transport."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent, ToolListChangedNotification

from tests.support.cli.terminal import PATIENCE, PROGRAM, environment, run, serving
from tests.support.cli.workflow_server import FLOWS, workflow_text, write_flows

pytestmark = [pytest.mark.usefixtures("flows")]

RELEASED = {"tag": "v1", "copies": 2, "built": "v1"}


@pytest.fixture
def flows(folder: Path) -> None:
    del folder
    write_flows()


def on_stdio(*words: str) -> StdioServerParameters:
    args = [*PROGRAM[1:], "serve", "flows.yaml", "--store", "tasks.db", *words]
    return StdioServerParameters(command=PROGRAM[0], args=args, cwd=Path.cwd(), env=environment())


@pytest.mark.parametrize("mode", ["2026-07-28", "2025-11-25"])
def test_each_workflow_is_a_tool_with_its_schema_in_both_protocols(mode: str) -> None:
    async def talk() -> tuple[dict[str, Any], Any, str]:
        async with Client(on_stdio(), mode="auto" if mode.startswith("2026") else "legacy") as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            done = await client.call_tool("release", {"tag": "v1"})
            wrong = (await client.call_tool("release", {"tag": 1})).content[0]
            assert isinstance(wrong, TextContent)
            return tools, done.structured_content, wrong.text

    tools, done, wrong = asyncio.run(talk())
    assert {"release", "confirm", "hold", "fail"} <= set(tools)
    assert tools["release"].description == "Release a version."
    assert set(tools["release"].input_schema["properties"]) == {"tag", "copies"}
    assert tools["release"].input_schema["required"] == ["tag"]
    assert done == RELEASED
    assert "the arguments do not fit its input schema: tag: 1 is not of type 'string'" in wrong


def test_workflows_are_served_over_http_and_on_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("--http", "127.0.0.1:0", "--store", "a.db", target="flows.yaml") as url:
        assert json.loads(run("call", url, "release", "tag=v1").stdout) == RELEASED
    # Not in a folder of pytest's: its name may be too long for a socket.
    with tempfile.TemporaryDirectory(prefix="rc-") as short:
        monkeypatch.chdir(short)
        write_flows()
        with serving("--unix", "it.sock", "--store", "b.db", target="flows.yaml") as where:
            assert json.loads(run("call", where, "release", "tag=v1").stdout) == RELEASED


def test_a_folder_of_files_is_served_as_one() -> None:
    Path("many").mkdir()
    write_flows(workflow_text("one"), "many/one.yaml")
    write_flows(workflow_text("two"), "many/two.yml")
    with serving("--http", "127.0.0.1:0", "--store", "a.db", target="many") as url:
        assert json.loads(run("call", url, "two").stdout) == {"name": "two"}


def test_the_tools_of_a_file_are_explained() -> None:
    done = run("tools", "flows.yaml", "--json")
    assert [tool["name"] for tool in json.loads(done.stdout)] == ["release", "confirm", "hold", "fail"]


@pytest.fixture
def worker() -> Iterator["subprocess.Popen[str]"]:
    words = ["worker", "flows.yaml", "--store", "shared.db", "--json"]
    process = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True, env=environment())
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_a_worker_runs_the_servers_workflows(worker: "subprocess.Popen[str]") -> None:
    assert worker.stdout is not None
    post = json.loads(worker.stdout.readline())
    assert (post["name"], post["tools"]) == ("flows", ["confirm", "fail", "hold", "release"])
    with serving("--http", "0", "--no-work", "--store", "shared.db", target="flows.yaml") as url:
        assert json.loads(run("call", url, "release", "tag=v1").stdout) == RELEASED


def test_a_running_server_reloads_changes_and_notifies_its_callers() -> None:
    async def talk() -> tuple[object, object]:
        changed = asyncio.Event()

        async def hear(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                changed.set()

        async with Client(on_stdio(), mode="legacy", message_handler=hear) as client:
            running = asyncio.ensure_future(client.call_tool("hold"))
            while not await asyncio.to_thread(Path("begun").exists):
                await client.list_tools()
            await asyncio.to_thread(change)
            await changed.wait()
            assert "other" in [tool.name for tool in (await client.list_tools()).tools]
            await asyncio.to_thread(Path("go").touch)
            new = await client.call_tool("other")
            return (await running).structured_content, new.structured_content

    def change() -> None:
        write_flows(FLOWS.replace("set: old", "set: new") + workflow_text("other").partition("workflows:\n")[2])
        later = Path("flows.yaml").stat().st_mtime_ns + 10**9
        os.utime("flows.yaml", ns=(later, later))

    assert asyncio.run(talk()) == ({"result": "old"}, {"name": "other"})


def test_a_package_with_yaml_files_is_still_a_package() -> None:
    Path("shop").mkdir()
    Path("shop/settings.yaml").write_text("colour: red\n")
    Path("shop/__init__.py").write_text("")
    done = run("serve", "shop")
    assert done.returncode == 2
    assert "shop has no tasks" in done.stderr
    sys.modules.pop("shop", None)
