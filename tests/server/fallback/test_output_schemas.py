"""The SDK's client validates structured content against the listed schema, which both kinds of answers fit."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypedDict, cast

import pytest
from mcp.client import Client
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool
from pydantic import BaseModel

from raincheck import Tasks
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.transports import over_http

pytestmark = pytest.mark.anyio

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
WAYS = pytest.mark.parametrize("way", ["memory", "http"])


class Line(BaseModel):
    item: str
    price: float | None = None


class Receipt(BaseModel):
    lines: list[Line]
    best: Line


class Folder(BaseModel):
    name: str
    folders: list["Folder"] = []


class Loose(BaseModel):
    """A schema that every object fits."""

    note: str | None = None


class Strict(BaseModel, extra="forbid"):
    name: str


class Row(TypedDict):
    task_id: int


async def text() -> str:
    return "a text"


async def number() -> int:
    return 7


async def nothing() -> None:
    return None


async def receipt() -> Receipt:
    return Receipt(lines=[Line(item="bread")], best=Line(item="milk", price=1.5))


async def receipts() -> list[Receipt]:
    return [await receipt()]


async def folder() -> Folder:
    return Folder(name="a", folders=[Folder(name="b")])


async def loose() -> Loose:
    return Loose(note="x")


async def strict() -> Strict:
    return Strict(name="x")


async def table() -> dict[str, int]:
    return {"a": 1}


async def row() -> Row:
    """It has a field named like one of a task reference, with another type."""
    return {"task_id": 7}


async def untyped() -> Any:
    return {"x": 1}


KINDS = (text, number, nothing, receipt, receipts, folder, loose, strict, table, row, untyped)


class OneToolServer:
    """A server with one tool, which waits until the test lets it."""

    def __init__(self, tool: Callable[..., Any], **listed: Any) -> None:
        self.server = ExampleServer(fallback_wait=0.1)
        self.go = asyncio.Event()
        self.name = tool.__name__

        async def late() -> Any:
            await self.go.wait()
            return await tool()

        late.__annotations__["return"] = tool.__annotations__["return"]
        self.server.tasks.tool(name=self.name, **listed)(late)

    @asynccontextmanager
    async def client(self, mode: str, way: str = "memory") -> AsyncGenerator[Client]:
        if way == "memory":
            async with Client(self.server.mcp, mode=mode) as client:
                yield client
        else:
            async with (
                over_http(self.server.mcp.streamable_http_app()) as transport,
                Client(transport.url, mode=mode) as client,
            ):
                yield client


def structured(result: Any) -> dict[str, Any]:
    assert isinstance(result, CallToolResult)
    assert not result.is_error, result
    return cast("dict[str, Any]", result.structured_content)


async def assert_accepted(client: Client, name: str, go: asyncio.Event) -> None:
    """Check that the client accepts the task reference, the late result, and the result of the call itself."""
    handle = structured(await client.call_tool(name))
    following = handle["next"]
    assert (following["tool"], following["arguments"]) == ("task_wait", {"task_id": handle["task_id"]})
    go.set()
    late = await client.call_tool(following["tool"], following["arguments"])
    at_once = await client.call_tool(name)
    assert isinstance(late, CallToolResult)
    assert isinstance(at_once, CallToolResult)
    assert late.structured_content == at_once.structured_content
    assert late.content == at_once.content


@MODES
@pytest.mark.parametrize("tool", KINDS, ids=lambda tool: tool.__name__)
async def test_the_client_accepts_a_task_reference_as_well_as_a_result_of_every_kind(
    tool: Callable[..., Any], mode: str
) -> None:
    bench = OneToolServer(tool)
    async with bench.client(mode) as client:
        await assert_accepted(client, bench.name, bench.go)


@MODES
async def test_over_http_too(mode: str) -> None:
    bench = OneToolServer(receipt)
    async with bench.client(mode, "http") as client:
        await assert_accepted(client, bench.name, bench.go)


@MODES
async def test_a_tool_without_an_output_schema_has_none_for_fallback_hosts_either(mode: str) -> None:
    bench = OneToolServer(receipt, structured_output=False)
    async with bench.client(mode) as client:
        (listed,) = [tool for tool in (await client.list_tools()).tools if tool.name == "receipt"]
        assert listed.output_schema is None
        handle = structured(await client.call_tool("receipt"))
        assert handle["next"]["tool"] == "task_wait"
        bench.go.set()
        late = await client.call_tool("task_wait", {"task_id": handle["task_id"]})
        assert isinstance(late, CallToolResult)
        assert late.structured_content is None


@MODES
async def test_the_client_rejects_content_that_fits_neither_schema(mode: str) -> None:
    """The extended schema still rejects invalid content."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    async with low_level(schema, {"b": 1}) as (server, go):
        go.set()
        async with Client(server, mode=mode) as client:
            with pytest.raises(RuntimeError, match="Invalid structured content"):
                await client.call_tool("work")


@asynccontextmanager
async def low_level(schema: dict[str, Any], result: Any) -> AsyncGenerator[tuple[Server[Any], asyncio.Event]]:
    """A low-level server whose only tool has an output schema of its author."""
    go = asyncio.Event()

    async def call_tool(_: ServerRequestContext[Any, Any], __: CallToolRequestParams) -> CallToolResult:
        await go.wait()
        return CallToolResult(content=[TextContent(text="done")], structured_content=result)

    async def list_tools(_: ServerRequestContext[Any, Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="work", input_schema={"type": "object"}, output_schema=schema)])

    server: Server[Any] = Server("low", on_call_tool=call_tool, on_list_tools=list_tools)
    Tasks(server, "memory:", settings=QUICK, fallback_wait=0.1).enable("work")
    yield server, go


NODE: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
SAME: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}},
    "required": ["a", "b"],
}
OLD: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": {"price": {"type": "number"}},
    "type": "object",
    "properties": {"price": {"$ref": "#/definitions/price"}},
    "required": ["price"],
}
NAMED: dict[str, Any] = {
    "$id": "https://example.com/price",
    "$defs": {"price": {"$anchor": "price", "type": "number"}},
    "type": "object",
    "properties": {"price": {"$ref": "#price"}, "other": {"$ref": "https://example.com/price#/$defs/price"}},
    "required": ["price"],
}
CLOSED: dict[str, Any] = {
    "type": "object",
    "allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}],
    "unevaluatedProperties": False,
}


@MODES
@pytest.mark.parametrize(
    ("schema", "result"),
    [
        (NODE, {"next": {"next": {}}}),
        (SAME, {"a": 1, "b": 2}),
        (OLD, {"price": 1.5}),
        (NAMED, {"price": 1.5, "other": 2}),
        (CLOSED, {"a": 1}),
        ({"type": "object"}, {"anything": None}),
    ],
    ids=["recursive", "by a path", "draft 7", "by name", "closed", "open"],
)
async def test_relocated_schemas_still_resolve_their_references(schema: dict[str, Any], result: Any, mode: str) -> None:
    async with low_level(schema, result) as (server, go), Client(server, mode=mode) as client:
        await assert_accepted(client, "work", go)


@MODES
@pytest.mark.parametrize(
    ("schema", "result"),
    [(SAME, {"a": 1, "b": "two"}), (OLD, {"price": "cheap"}), (CLOSED, {"a": 1, "b": 2})],
    ids=["by a path", "draft 7", "closed"],
)
async def test_relocated_schemas_still_reject_invalid_content(schema: dict[str, Any], result: Any, mode: str) -> None:
    async with low_level(schema, result) as (server, go):
        go.set()
        async with Client(server, mode=mode) as client:
            with pytest.raises(RuntimeError, match="Invalid structured content"):
                await client.call_tool("work")
