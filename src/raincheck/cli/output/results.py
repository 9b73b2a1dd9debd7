"""Print tool results, the tools of a server, and tasks.

Results are printed for a person to read, or as JSON. Tools are found by name, and listed with their arguments. The
status of a task is formatted for one cell of a table, with untrusted text escaped.
"""

import difflib
import errno
import json
import sys
from typing import TYPE_CHECKING, Any, cast

import typer
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

from raincheck.cli.exit_codes import ExitCode, UsageError
from raincheck.cli.prompts.arguments import describe_schema
from raincheck.core.lifecycle import Status
from raincheck.core.records import Task
from raincheck.operations.describe import format_json, printable, printable_lines
from raincheck.wire.fallback_text import clip_text
from raincheck.wire.fields import as_object

if TYPE_CHECKING:
    # Commands that print tasks alone need no SDK, and importing it takes most of a second.
    from mcp_types import CallToolResult, ContentBlock, Tool

STYLES = {
    Status.WORKING: "cyan",
    Status.INPUT_REQUIRED: "yellow",
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "dim",
}

TOOL_ERROR = "red"

FILE_WIDTH = 240
"""The width of output to a file or a pipe, in columns: there is no screen to fit, and programs search for lines."""


def make_console(console: Console | None = None, *, is_error: bool = False, width: int = FILE_WIDTH) -> Console:
    """Return a console as wide as the terminal and with colours, or a wide and plain one without a terminal."""
    console = console or Console(stderr=is_error)
    return console if console.is_terminal else Console(file=console.file, width=width, color_system=None)


def format_status(task: Task) -> Text:
    """Format the status and, while the task is live, the phase."""
    return _styled(task, str(task.status) if task.is_terminal else f"{task.status} ({task.phase})")


def format_phase(task: Task) -> Text:
    """Format the phase, or the status if the task waits for an answer, since that matters more."""
    return _styled(task, task.status if task.status is Status.INPUT_REQUIRED else task.phase)


def _styled(task: Task, text: str) -> Text:
    return Text(text, TOOL_ERROR if task.is_error else STYLES[task.status])


def find_tool(tools: "list[Tool]", name: str) -> "Tool":
    """Return the tool with this name.

    Raises:
        UsageError: there is none. The error suggests a similar name.
    """
    found = next((tool for tool in tools if tool.name == name), None)
    if found is not None:
        return found
    names = [tool.name for tool in tools]
    similar = difflib.get_close_matches(name, names, n=1)
    if similar:
        raise UsageError(f"the server has no tool {name!r}: did you mean {printable(similar[0])!r}?")
    hint = f"it has {printable(', '.join(names))}" if names else "it has no tools"
    raise UsageError(f"the server has no tool {name!r}: {hint}")


def print_tools(tools: "list[Tool]", *, as_json: bool) -> None:
    """Print each tool with its description and its arguments."""
    if as_json:
        shown = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]
        typer.echo(format_json(shown))
        return
    console = make_console()
    if not tools:
        console.print("the server has no tools")
    for number, tool in enumerate(tools):
        if number:
            console.print()
        _print_tool(tool, console)


def _print_tool(tool: "Tool", console: Console) -> None:
    console.print(Text(printable(tool.name), "bold"), soft_wrap=True)
    if tool.description:
        console.print(Text(f"  {printable(clip_text(tool.description))}"), soft_wrap=True)
    schema = tool.input_schema
    required = cast("list[str]", schema.get("required") or [])
    for name, kind in as_object(schema.get("properties")).items():
        kind = as_object(kind)
        notes = [describe_schema(kind, schema)]
        if name not in required:
            notes.append(f"default {json.dumps(kind['default'])}" if kind.get("default") is not None else "optional")
        description = f": {clip_text(str(kind['description']))}" if kind.get("description") else ""
        line = Text(f"  {printable(str(name))} ", "cyan")
        console.print(line.append(printable(f"({', '.join(notes)}){description}"), "default"), soft_wrap=True)


WRAPPER_KEY = "result"
"""The key under which servers wrap a value that is not an object."""


def print_result(result: "CallToolResult", *, as_json: bool) -> ExitCode:
    """Print a result. A tool's error goes to stderr, unless the output is JSON.

    Raises:
        OSError: it can't be written.
    """
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - None if it was closed
        raise OSError(errno.EBADF, "stdout is closed")
    exit_code = ExitCode.FAILED if result.is_error else ExitCode.SUCCESS
    if as_json:
        shown = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        typer.echo(format_json(shown))
        return exit_code
    console = Console(stderr=bool(result.is_error), soft_wrap=True)
    structured = _structured(result)
    if not console.is_terminal:
        # Output to a file is not escaped.
        shown = [] if structured is None else [format_json(structured)]
        for text in [*_texts(result), *shown]:
            typer.echo(text, err=bool(result.is_error), color=True)
        return exit_code
    for text in _texts(result):
        console.print(printable_lines(text), style="red" if result.is_error else None, markup=False, highlight=False)
    if structured is not None:
        console.print(JSONHighlighter()(format_json(structured)))
    return exit_code


def _structured(result: "CallToolResult") -> Any:  # noqa: ANN401 - any JSON
    """Return the value to print as JSON; None if the text already contains all of it."""
    value: Any = result.structured_content
    if not isinstance(value, dict) or set(cast("dict[str, Any]", value)) != {WRAPPER_KEY}:
        return cast("Any", value)
    inside = cast("dict[str, Any]", value)[WRAPPER_KEY]
    texts = [block.text for block in result.content if block.type == "text"]
    return None if isinstance(inside, str) and inside in texts else inside


def _texts(result: "CallToolResult") -> list[str]:
    """Return the texts of the blocks, without those that only repeat what is printed as JSON."""
    value = _structured(result)
    if value is None:
        return [_format_block(block) for block in result.content]
    items = cast("list[Any]", value) if isinstance(value, list) else []
    parts: list[Any] = [value, result.structured_content, *items]
    repeated = {json.dumps(part, sort_keys=True) for part in parts}
    return [_format_block(block) for block in result.content if _normal(block) not in repeated]


def _normal(block: "ContentBlock") -> str | None:
    if block.type != "text":
        return None
    try:
        return json.dumps(json.loads(block.text), sort_keys=True)
    except (ValueError, RecursionError):
        return json.dumps(block.text)


def _format_block(block: "ContentBlock") -> str:
    from mcp_types import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents

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
