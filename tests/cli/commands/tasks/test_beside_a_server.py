"""Tests for the operator's commands on the store of a server that runs in another process."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from typer.testing import CliRunner

from raincheck.cli.app import program
from tests.support.cli.operator import STORE

pytestmark = [pytest.mark.usefixtures("folder")]

SERVER = """
import asyncio
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

from raincheck import TaskContext, Tasks, ToolError

tasks = Tasks(MCPServer("reports"), "tasks.db")


@tasks.tool
async def wait(task: TaskContext) -> str:
    await task.progress(1, 2, "waiting")
    print("working", flush=True)
    try:
        while not await task.step("look", look):
            await asyncio.sleep(0.02)
    except BaseException:
        print("stopped", flush=True)
        raise
    return "waited"


async def look() -> bool:
    return Path("go").exists()


@tasks.tool
async def fetch(name: str) -> str:
    if not Path(name).exists():
        raise ToolError(f"there is no {name}")
    return f"fetched {name}"


async def main():
    async with tasks.running() as engine:
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            tool, _, name = line.partition(" ")
            task = await engine.submit(tool, {"name": name} if name else {})
            print(task.id, flush=True)


asyncio.run(main())
"""


class Server:
    """A server that creates a task for each line on its stdin."""

    def __init__(self) -> None:
        Path("server.py").write_text(SERVER, encoding="utf-8")
        pipe = subprocess.PIPE
        self.program = subprocess.Popen([sys.executable, "server.py"], stdin=pipe, stdout=pipe, text=True)

    def ask(self, line: str) -> str:
        """The id of the new task."""
        stdin = self.program.stdin
        assert stdin is not None
        stdin.write(f"{line}\n")
        stdin.flush()
        return self.hear(r"[0-9a-f]{44}")

    def hear(self, pattern: str) -> str:
        """The next line that is like that."""
        stdout: IO[str] | None = self.program.stdout
        assert stdout is not None
        for line in stdout:
            if re.fullmatch(pattern, line.strip()):
                return line.strip()
        raise AssertionError("the server has stopped")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.program.kill()
    server.program.communicate()


def operate(*words: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(program, [*words, "--store", STORE])
    assert done.exit_code == exit_code, done.output
    return done.stdout


def test_a_task_is_listed_and_cancelled_in_the_servers_process(server: Server) -> None:
    task_id = server.ask("wait")
    server.hear("working")
    assert task_id[:20] in operate("tasks", "ls", "--status", "running")
    shown = json.loads(operate("tasks", "show", task_id[:16], "--json"))
    assert (shown["phase"], shown["progress"]) == ("running", {"done": 1.0, "total": 2.0})
    assert "is cancelled" in operate("tasks", "cancel", task_id[:16], "--reason", "enough")
    server.hear("stopped")
    assert json.loads(operate("tasks", "watch", task_id, "--json", exit_code=1))["status_message"] == "enough"


def test_a_paused_task_stops_and_continues_when_it_is_resumed(server: Server) -> None:
    task_id = server.ask("wait")
    server.hear("working")
    assert "pauses at its next checkpoint" in operate("tasks", "pause", task_id)
    server.hear("stopped")
    Path("go").touch()
    assert "is resumed" in operate("tasks", "resume", task_id)
    last = operate("tasks", "watch", task_id, "--json").splitlines()[-1]
    assert json.loads(last)["status"] == "completed"


def test_a_retried_task_is_run_by_the_server(server: Server) -> None:
    task_id = server.ask("fetch data.csv")
    operate("tasks", "watch", task_id, exit_code=1)
    Path("data.csv").touch()
    (printed,) = json.loads(operate("tasks", "retry", task_id, "--json"))
    new_id = printed["task"]["id"]
    operate("tasks", "watch", new_id)
    assert "fetched data.csv" in json.dumps(json.loads(operate("tasks", "export", new_id))["outcome"])
    assert json.loads(operate("tasks", "show", task_id, "--json"))["is_error"]


def test_doctor_and_stats_work_on_a_store_in_use(server: Server) -> None:
    Path("data.csv").touch()
    for _ in range(3):
        operate("tasks", "watch", server.ask("fetch data.csv"))
    server.ask("wait")
    server.hear("working")
    found = {one["name"]: one["verdict"] for one in json.loads(operate("doctor", "--json"))["findings"]}
    assert set(found.values()) == {"ok"}
    tools = {one["tool"]: one for one in json.loads(operate("stats", "--json"))["tools"]}
    assert (tools["fetch"]["completed"], tools["wait"]["live"]) == (3, 1)


def test_tasks_that_a_server_runs_are_not_deleted(server: Server) -> None:
    Path("data.csv").touch()
    done, busy = server.ask("fetch data.csv"), server.ask("wait")
    operate("tasks", "watch", done)
    server.hear("working")
    assert operate("tasks", "purge", "--older-than", "0s", "--yes") == "1 task deleted\n"
    Path("go").touch()
    assert "completed" in operate("tasks", "watch", busy)
