"""What we need of FastMCP and what it has no public name for, in one place.

It is looked for when tasks are attached, so that a FastMCP that has moved it is noticed there, with a message that says
so, and not at the first call.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

import fastmcp
from fastmcp import FastMCP
from fastmcp.server import dependencies
from fastmcp.server.providers import AggregateProvider
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp.server.lowlevel import Server

from raincheck.errors import ConfigurationError

AnyFastMCP: TypeAlias = FastMCP[Any]

PRIVATE: tuple[tuple[object, str], ...] = ((Tool, "_run"), (dependencies, "_is_client_tool_call"))


def lowlevel_of(server: AnyFastMCP) -> Server[Any]:
    """The SDK's server that a FastMCP server is built on.

    Raises:
        ConfigurationError: it is something else, or of a version that we don't know.
    """
    if not isinstance(server, FastMCP):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        raise ConfigurationError(
            f"these tasks are attached to a server of FastMCP 4, not to {server!r}: for one of the `mcp` SDK, import "
            f"Tasks from raincheck"
        )
    lowlevel = getattr(server, "_mcp_server", None)
    missing = [name for place, name in PRIVATE if not hasattr(place, name)]
    if missing or not isinstance(lowlevel, Server):
        name = missing[0] if missing else "_mcp_server"
        raise ConfigurationError(f"FastMCP {fastmcp.__version__} has no {name}: use another 4.x with raincheck")
    return cast("Server[Any]", lowlevel)


def has_name(server: AnyFastMCP) -> bool:
    """Whether its author named a server. One that has no name gets another each time it starts."""
    return re.fullmatch(rf"{type(server).__name__}-[0-9a-f]{{4}}", server.name) is None


async def all_tools_of(server: AnyFastMCP) -> Sequence[Tool]:
    """Every tool that a server has, whoever may call it: tasks of each may be waiting."""
    return await AggregateProvider.list_tools(server)


def is_callers_own() -> bool:
    """Whether a call is the one that a client made, and not one that a tool or middleware makes on the way."""
    return cast("Callable[[], bool]", getattr(dependencies, "_is_client_tool_call"))()  # noqa: B009 - it has no public name


async def run_tool(tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    """Run a tool as its server would, through the middleware of a server that is mounted, and see what it raises."""
    run = cast("Callable[[dict[str, Any]], Awaitable[ToolResult]]", getattr(tool, "_run"))  # noqa: B009 - likewise
    return await run(arguments)
