"""Tools with every kind of result, for servers with and without tasks."""

# pyright: reportUnusedFunction=false

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.shared.exceptions import MCPError
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
from pydantic import BaseModel


class Receipt(BaseModel):
    """A purchase."""

    item: str
    price: float | None = None
    tags: list[str] = []


async def text() -> str:
    return 'a text, "quoted" and ünïcödé \U0001f4a5\n'


async def empty_text() -> str:
    return ""


async def nothing() -> None:
    return None


async def number() -> float:
    return 1.5


async def yes() -> bool:
    return True


async def words() -> list[str]:
    return ["a", "b", ""]


async def no_words() -> list[str]:
    return []


async def table() -> dict[str, Any]:
    return {"rows": 3, "of": ["a", None, 1.5], "ü": {"none": None}, "content": "not what it seems"}


async def receipt() -> Receipt:
    return Receipt(item="bread", price=None, tags=["warm"])


async def receipts() -> list[Receipt]:
    return [Receipt(item="bread"), Receipt(item="milk", price=1.2)]


async def untyped() -> Any:
    return {"x": [1, 2]}


async def picture() -> Image:
    return Image(data=b"\x89PNG\r\n", format="png")


async def blocks() -> list[ContentBlock]:
    return [
        TextContent(type="text", text="one"),
        ImageContent(type="image", data="aGk=", mime_type="image/png"),
        AudioContent(type="audio", data="aGk=", mime_type="audio/wav"),
        ResourceLink(type="resource_link", uri="file:///a.txt", name="a"),
        EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///b.txt", text="b")),
    ]


async def whole_result() -> CallToolResult:
    return CallToolResult.model_validate(
        {
            "content": [{"type": "text", "text": "see there", "annotations": {"priority": 0.5}}],
            "structuredContent": {"there": [None, 0]},
            "_meta": {"example.com/kept": {"deep": [1]}},
        }
    )


async def only_structured() -> CallToolResult:
    return CallToolResult(content=[], structured_content={"a": 1})


async def structured_list() -> CallToolResult:
    return CallToolResult.model_validate({"content": [{"type": "text", "text": "[1]"}], "structuredContent": [1]})


async def structured_text() -> CallToolResult:
    return CallToolResult.model_validate({"content": [{"type": "text", "text": "x"}], "structuredContent": "x"})


async def error_result() -> CallToolResult:
    return CallToolResult.model_validate(
        {
            "content": [{"type": "text", "text": "no paper"}, {"type": "text", "text": "left"}],
            "structuredContent": {"left": 0},
            "isError": True,
            "_meta": {"example.com/kept": 1},
        }
    )


async def tool_error() -> str:
    raise SdkToolError("no paper left")


async def protocol_error() -> str:
    raise MCPError(-32042, "go there first", {"where": ["there", None]})


async def protocol_error_without_data() -> str:
    raise MCPError(-32043, "go away")


def in_a_thread() -> str:
    return "from a thread"


async def large() -> str:
    return "x" * 1_000_000


RESULT_TOOLS: tuple[Callable[..., Any], ...] = (
    text,
    empty_text,
    nothing,
    number,
    yes,
    words,
    no_words,
    table,
    receipt,
    receipts,
    untyped,
    picture,
    blocks,
    whole_result,
    only_structured,
    error_result,
    tool_error,
    protocol_error,
    protocol_error_without_data,
    in_a_thread,
    large,
)

TOOLS_WITHOUT_V2025_FORM = (structured_list, structured_text)
"""Tools whose structured content is not an object, which 2025-11-25 requires."""
