"""The result of a tool: for a person to read, or as JSON.

The tools of a server: found by name, and listed with their arguments.

How tasks are told of on a terminal: short, in one line, and with nothing in it that a terminal would obey.
"""

import difflib
import errno
import json
import sys
from typing import Any, cast

import typer
from mcp.client import Client
from mcp_types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

from raincheck.cli.exit_codes import Ending, Unusable
from raincheck.cli.prompts.arguments import as_object, in_words
from raincheck.core.lifecycle import Status
from raincheck.core.records import Task
from raincheck.operations.describe import harmless, json_of, printable
from raincheck.wire.fallback_text import clipped

STYLES = {
    Status.WORKING: "cyan",
    Status.INPUT_REQUIRED: "yellow",
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "dim",
}

TOOL_ERROR = "red"

WIDE = 160
"""The width of a table that goes into a file, where there is no screen to fit."""


def make_console(*, is_error: bool = False, wide: int = WIDE) -> Console:
    """Where to print: as wide as the terminal and with colours, or else wide and plain."""
    console = Console(stderr=is_error)
    return console if console.is_terminal else Console(stderr=is_error, width=wide, color_system=None)


def told_status(task: Task) -> Text:
    """The status, and while the task lives the phase."""
    return _styled(task, str(task.status) if task.is_terminal else f"{task.status} ({task.phase})")


def told_phase(task: Task) -> Text:
    """The phase, unless somebody has to answer: then it matters more that they do."""
    return _styled(task, task.status if task.status is Status.INPUT_REQUIRED else task.phase)


def _styled(task: Task, word: str) -> Text:
    return Text(word, TOOL_ERROR if task.is_error else STYLES[task.status])


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


WRAPPED = "result"
"""Where servers put a value that is no object."""


def print_result(result: CallToolResult, *, as_json: bool) -> Ending:
    """Print it. An error of the tool goes to stderr, unless it is read by a program.

    Raises:
        OSError: it can't be written.
    """
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - it is, where it was closed
        raise OSError(errno.EBADF, "stdout is closed")
    ending = Ending.FAILED if result.is_error else Ending.DONE
    if as_json:
        shown = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        typer.echo(json_of(shown))
        return ending
    console = Console(stderr=bool(result.is_error), soft_wrap=True)
    structured = _structured(result)
    if not console.is_terminal:
        # What goes into a file goes there as it is.
        shown = [] if structured is None else [json_of(structured)]
        for text in [*_texts(result), *shown]:
            typer.echo(text, err=bool(result.is_error), color=True)
        return ending
    for text in _texts(result):
        console.print(harmless(text), style="red" if result.is_error else None, markup=False, highlight=False)
    if structured is not None:
        console.print(JSONHighlighter()(json_of(structured)))
    return ending


def _structured(result: CallToolResult) -> Any:  # noqa: ANN401 - any JSON
    """What to print as JSON; None if the text says it all."""
    value: Any = result.structured_content
    if not isinstance(value, dict) or set(cast("dict[str, Any]", value)) != {WRAPPED}:
        return cast("Any", value)
    inside = cast("dict[str, Any]", value)[WRAPPED]
    texts = [block.text for block in result.content if block.type == "text"]
    return None if isinstance(inside, str) and inside in texts else inside


def _texts(result: CallToolResult) -> list[str]:
    """The blocks in words, without those that only repeat what is printed as JSON."""
    said = _structured(result)
    if said is None:
        return [_in_words(block) for block in result.content]
    items = cast("list[Any]", said) if isinstance(said, list) else []
    parts: list[Any] = [said, result.structured_content, *items]
    repeated = {json.dumps(part, sort_keys=True) for part in parts}
    return [_in_words(block) for block in result.content if _normal(block) not in repeated]


def _normal(block: ContentBlock) -> str | None:
    if not isinstance(block, TextContent):
        return None
    try:
        return json.dumps(json.loads(block.text), sort_keys=True)
    except (ValueError, RecursionError):
        return json.dumps(block.text)


def _in_words(block: ContentBlock) -> str:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
            return f"[{kind}, {len(data) * 3 // 4} bytes: --json shows them]"
        case ResourceLink(uri=uri, name=name):
            return f"[{name}: {uri}]"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=resource):
            return f"[{resource.uri}: --json shows it]"
