"""A command reads no more of a response than its limit, and says how to read a larger one."""

import re
from pathlib import Path

import pytest

from tests.support.cli.terminal import run, serving

SERVER = """
from mcp.server.mcpserver import MCPServer
from raincheck import Tasks

mcp = MCPServer("large")
tasks = Tasks(mcp)

@tasks.tool(mode="required")
async def report(size: int) -> str:
    return "x" * size

@mcp.tool(structured_output=False)
async def text(size: int) -> str:
    return "x" * size
"""

LIMIT = ("--max-response-bytes", "100000")


@pytest.fixture
def server(folder: Path) -> None:
    (folder / "server.py").write_text(SERVER, encoding="utf-8")


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("address", [("--http", "127.0.0.1:0"), ("--unix", "large.sock")])
def test_a_result_beyond_the_limit_is_not_read_and_can_be_read_with_a_higher_one(address: tuple[str, str]) -> None:
    with serving(*address) as url:
        refused = run("call", url, "report", "size=200000", *LIMIT)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "the limit" in refused.stderr
        assert "100,000" in refused.stderr
        found = re.search(r"raincheck wait --max-response-bytes BYTES (\w+)", refused.stderr)
        assert found is not None, refused.stderr
        got = run("get", found[1], *LIMIT)
        assert got.returncode == 2
        assert "--max-response-bytes" in got.stderr
        assert run("wait", found[1], "--max-response-bytes", "500000").stdout == "x" * 200_000 + "\n"
        inline = run("call", url, "text", "size=200000", *LIMIT)
        assert (inline.returncode, inline.stdout) == (2, "")
        assert "--max-response-bytes" in inline.stderr
        assert run("call", url, "text", "size=1000", *LIMIT).stdout == "x" * 1_000 + "\n"
