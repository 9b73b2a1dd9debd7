"""A `TaskTool` can't be added to a FastMCP server, and the error says what to do instead."""

import pytest

from fastmcp import FastMCP
from raincheck.engine.tool import make_tool
from raincheck.errors import ConfigurationError
from raincheck.fastmcp import Tasks


async def hello() -> str:
    return "hello"


def test_a_task_tool_is_refused_and_leaves_the_server_unchanged() -> None:
    tasks = Tasks(FastMCP("shop"), "memory:")
    with pytest.raises(ConfigurationError, match="add that to the server, and enable it here"):
        tasks.add(make_tool(hello), input_schema={"type": "object"})
    with pytest.raises(ConfigurationError, match="no tool 'hello' was added"):
        tasks.remove("hello")
