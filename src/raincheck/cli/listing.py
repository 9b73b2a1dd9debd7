"""The tools of a server: found by name, and listed with their arguments."""

import difflib
import json
from typing import cast

import typer
from mcp.client import Client
from mcp_types import Tool
from rich.console import Console
from rich.text import Text

from raincheck.cli.endings import Unusable
from raincheck.cli.plain import json_of, printable
from raincheck.cli.schemas import as_object, in_words
from raincheck.cli.telling import make_console
from raincheck.wire.spoken import clipped

MOST_PAGES = 100
"""Of a list of tools: a server that pages in circles must not hang us."""


async def list_tools(client: Client) -> list[Tool]:
    """All tools of a server."""
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def find_tool(tools: list[Tool], name: str) -> Tool:
    """The tool of this name.

    Raises:
        Unusable: there is none; it says which one may be meant.
    """
    found = next((tool for tool in tools if tool.name == name), None)
    if found is not None:
        return found
    names = [tool.name for tool in tools]
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        raise Unusable(f"the server has no tool {name!r}: did you mean {printable(near[0])!r}?")
    has = f"it has {printable(', '.join(names))}" if names else "it has none at all"
    raise Unusable(f"the server has no tool {name!r}: {has}")


def print_tools(tools: list[Tool], *, as_json: bool) -> None:
    """Print each tool: what it does, and what it takes."""
    if as_json:
        shown = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]
        typer.echo(json_of(shown))
        return
    console = make_console()
    if not tools:
        console.print("the server has no tools")
    for number, tool in enumerate(tools):
        if number:
            console.print()
        _print_tool(tool, console)


def _print_tool(tool: Tool, console: Console) -> None:
    console.print(Text(printable(tool.name), "bold"), soft_wrap=True)
    if tool.description:
        console.print(Text(f"  {printable(clipped(tool.description))}"), soft_wrap=True)
    schema = tool.input_schema
    required = cast("list[str]", schema.get("required") or [])
    for name, kind in as_object(schema.get("properties")).items():
        kind = as_object(kind)
        words = [in_words(kind, schema)]
        if name not in required:
            words.append(f"default {json.dumps(kind['default'])}" if kind.get("default") is not None else "optional")
        said = f": {clipped(str(kind['description']))}" if kind.get("description") else ""
        line = Text(f"  {printable(str(name))} ", "cyan")
        console.print(line.append(printable(f"({', '.join(words)}){said}"), "default"), soft_wrap=True)
