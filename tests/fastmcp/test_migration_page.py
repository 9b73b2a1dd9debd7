"""The "before" programs of the migration page run where their libraries are installed."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.peers import FASTMCP4, MCP1, Peer

PAGE = ROOT / "docs/howto/move-from-fastmcp-tasks.md"
BEFORE = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)

IN_FASTMCP = """
import asyncio
from fastmcp import Client

async def main():
    async with Client(mcp) as client:
        print(*(tool.name for tool in await client.list_tools()))
        print((await client.call_tool("build_report", {"year": 2026})).data)

asyncio.run(main())
"""

IN_MCP1 = """
import asyncio
from mcp.shared.memory import create_connected_server_and_client_session

async def main():
    async with create_connected_server_and_client_session(server) as session:
        print(*(tool.name for tool in (await session.list_tools()).tools))
        print((await session.call_tool("publish", {"name": "it"})).content[0].text)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("peer", "number", "ending", "printed"),
    [
        (FASTMCP4, 0, IN_FASTMCP, "build_report publish\nthe report of 2026\n"),
        (MCP1, 1, IN_MCP1, "publish\nThis tool requires task-augmented invocation\n"),
    ],
    ids=["fastmcp-tasks", "mcp-1"],
)
def test_the_programs_before_the_migration_run(
    peer: Peer, number: int, ending: str, printed: str, tmp_path: Path
) -> None:
    program = tmp_path / "before.py"
    program.write_text(BEFORE[number] + ending, encoding="utf-8")
    command = [peer.python(), "-W", "ignore", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert done.stdout == printed, done.stderr
    assert len(BEFORE) == 2
