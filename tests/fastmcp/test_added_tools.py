"""Tools that are ready to run are for servers of the SDK: on FastMCP, adding one says what to do instead."""

import pytest

from fastmcp import FastMCP
from raincheck.engine.tool import make_tool
from raincheck.errors import ConfigurationError
from raincheck.fastmcp import Tasks


async def hello() -> str:
    return "hello"


def test_a_ready_tool_is_refused_and_leaves_nothing_behind() -> None:
    tasks = Tasks(FastMCP("shop"), "memory:")
    with pytest.raises(ConfigurationError, match="add one to the server, and enable it here"):
        tasks.add(make_tool(hello), input_schema={"type": "object"})
    with pytest.raises(ConfigurationError, match="no tool 'hello' was added"):
        tasks.remove("hello")
