"""Tests for output that can't be written: the error is one line, and results are not lost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.support.cli.terminal import environment

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk here that is always full")

PROGRAM = str(Path(sys.executable).with_name("raincheck"))

SERVER = """
from mcp.server.mcpserver import MCPServer
from raincheck import Tasks

mcp = MCPServer("reports")
tasks = Tasks(mcp, "tasks.db")


@tasks.tool(inline_for=0)
async def greet(name: str) -> str:
    return f"hello {name}"
"""


def run(folder: Path, *words: str, to: IO[str] | int = subprocess.PIPE) -> "subprocess.CompletedProcess[str]":
    env = environment(XDG_STATE_HOME=str(folder))
    return subprocess.run(
        [PROGRAM, *words], stdout=to, stderr=subprocess.PIPE, cwd=folder, env=env, text=True, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(SERVER)
    return tmp_path


def open_calls(folder: Path) -> list[str]:
    return [task_ref["task_id"] for task_ref in json.loads(run(folder, "wait", "--json").stdout)]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_result_that_can_not_be_written_is_reported_and_stays_saved(folder: Path, form: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        called = run(folder, "call", f"{PROGRAM} serve server.py", "greet", "name=Ada", *form, to=full)
    assert called.returncode == 1
    assert "raincheck: can't write to stdout: No space left on device" in called.stderr
    assert "Traceback" not in called.stderr
    (task_id,) = open_calls(folder)
    again = run(folder, "wait", task_id)
    assert (again.returncode, again.stdout) == (0, "hello Ada\n")
    assert open_calls(folder) == []


def test_a_closed_stdout_does_not_lose_a_result(folder: Path) -> None:
    env = environment(XDG_STATE_HOME=str(folder))
    line = f"{PROGRAM} call '{PROGRAM} serve server.py' greet name=Ada >&-"
    called = subprocess.run(
        ["/bin/sh", "-c", line], stderr=subprocess.PIPE, cwd=folder, env=env, text=True, check=False
    )
    assert (called.returncode, "stdout is closed" in called.stderr) == (1, True)
    assert len(open_calls(folder)) == 1


def test_a_list_that_can_not_be_written_is_reported_in_one_line(folder: Path) -> None:
    assert run(folder, "call", f"{PROGRAM} serve server.py", "greet", "name=Ada").returncode == 0
    with Path("/dev/full").open("w") as full:
        listed = run(folder, "tasks", "ls", "--store", "tasks.db", to=full)
    assert listed.returncode == 1
    assert listed.stderr.splitlines()[-1].startswith("raincheck: can't write to stdout")
    assert "Traceback" not in listed.stderr
