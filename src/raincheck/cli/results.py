"""The result of a tool: for a person to read, or as JSON."""

import errno
import json
import sys
from typing import Any, cast

import typer
from mcp_types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from rich.console import Console
from rich.highlighter import JSONHighlighter

from raincheck.cli.endings import Ending
from raincheck.cli.plain import harmless, json_of

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
