"""The documented host configurations start a working server."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.stdio import StdioServerParameters

from raincheck.client import TaskClient
from tests.support.docs.pages import ROOT, text_of

PAGE = ROOT / "docs/howto/connect-a-host.md"
BLOCKS: list[dict[str, Any]] = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", text_of(PAGE), re.DOTALL)]
SERVERS = [one for block in BLOCKS for name in ("mcpServers", "servers") for one in block.get(name, {}).values()]
HOME = "/home/you/reports"

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Disable the check: the SDK searches for the program that it starts."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Create the folder that the page describes."""
    shutil.copy(ROOT / "docs_src/reports.py", tmp_path)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    return tmp_path


def test_there_is_a_configuration_for_each_transport() -> None:
    assert [server["type"] for server in SERVERS] == ["stdio", "stdio", "http"]


@pytest.mark.parametrize("server", SERVERS[:2])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_host_with_the_documented_configuration_gets_results(
    home: Path, server: dict[str, Any], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A host starts it from anywhere.
    monkeypatch.chdir("/")
    command, *args = (word.replace(HOME, str(home)) for word in (server["command"], *server["args"]))
    async with TaskClient(StdioServerParameters(command=command, args=args), mode=mode) as client:
        result = await client.call_tool("build_report", {"year": 2026, "months": 1})
    assert result.structured_content == {"total": 2026}
    assert (home / "tasks.db").exists()
