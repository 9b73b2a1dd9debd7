"""Tests for serving and calling a FastMCP server from the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).with_name("raincheck"))
SERVER = """
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError

from raincheck.fastmcp import Tasks

mcp = FastMCP("fast")
tasks = Tasks(mcp, "fast.db")


@tasks.tool
async def hello(name: str) -> str:
    return f"hello {name}"


@mcp.tool
def refuse() -> str:
    raise ToolError("that report does not exist")
"""


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAINCHECK_CALLS", str(tmp_path / "calls.book"))
    Path("server.py").write_text(SERVER)


def call(where: str) -> str:
    done = subprocess.run([PROGRAM, "call", where, "hello", "name=you"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_fastmcp_server_is_served_on_stdio() -> None:
    assert call(f"{PROGRAM} serve server.py:mcp") == "hello you"


def test_a_fastmcp_server_is_served_over_http() -> None:
    command = (PROGRAM, "serve", "server.py", "--http", "127.0.0.1:0", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        try:
            assert call(json.loads(serving.stdout.readline())["at"]) == "hello you"
        finally:
            serving.terminate()


def test_an_error_of_a_tool_without_tasks_reaches_its_caller() -> None:
    """FastMCP logs it, by our handler."""
    done = subprocess.run(
        [PROGRAM, "call", f"{PROGRAM} serve server.py", "refuse"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "that report does not exist" in done.stderr
