"""The client reads no more of a response than its limit."""

import gzip
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

from raincheck import ConfigurationError
from raincheck.cli.remote.target import unix_client
from raincheck.client import ResponseTooLarge, SavedCalls, TaskClient
from raincheck.client.connection import MAX_RESPONSE_BYTES, response_limiter
from tests.support.http_server import running_app
from tests.support.server.example import ExampleServer
from tests.support.server.unix.transports import short_folder

pytestmark = pytest.mark.anyio

LIMIT = 2 * 2**20
"""More than the SDK's own limit for an event."""


def make_server(store: str | Path = "memory:", **options: Any) -> ExampleServer:
    server = ExampleServer(store, **options)

    @server.mcp.tool(structured_output=False)
    async def text(size: int) -> str:
        return "x" * size

    @server.tasks.tool(mode="required")
    async def report(size: int) -> str:
        return "x" * size

    return server


@asynccontextmanager
async def connected(app: ASGIApp, **options: Any) -> AsyncGenerator[TaskClient]:
    async with running_app(app) as url, TaskClient(url, max_response_bytes=LIMIT, **options) as client:
        yield client


@pytest.mark.parametrize(("mode", "is_json"), [("auto", True), ("legacy", True), ("legacy", False)])
async def test_a_response_within_the_limit_is_read_and_a_larger_one_is_not(mode: str, *, is_json: bool) -> None:
    app = make_server().mcp.streamable_http_app(json_response=is_json)
    async with connected(app, mode=mode) as client:
        for _ in range(2):
            await client.call_tool("text", {"size": LIMIT - 1_000})
            with pytest.raises(ResponseTooLarge, match=f"{LIMIT:,}.*max_response_bytes") as refused:
                await client.call_tool("text", {"size": LIMIT})
            assert refused.value.limit == LIMIT


async def test_the_error_has_the_size_that_the_server_declares() -> None:
    async with connected(make_server().mcp.streamable_http_app(json_response=True)) as client:
        with pytest.raises(ResponseTooLarge) as refused:
            await client.call_tool("text", {"size": 3_000_000})
        assert refused.value.size is not None
        assert 3_000_000 < refused.value.size < 3_001_000
        assert f"has {refused.value.size:,} bytes" in str(refused.value)


async def test_a_client_with_a_higher_limit_fetches_what_another_could_not(tmp_path: Path) -> None:
    saved_calls = SavedCalls(tmp_path / "calls")
    async with running_app(make_server().mcp.streamable_http_app()) as url:
        async with TaskClient(url, saved_calls=saved_calls, max_response_bytes=LIMIT) as client:
            handle = await client.call("report", {"size": LIMIT})
            with pytest.raises(ResponseTooLarge):
                await handle.result()
        async with TaskClient(url, saved_calls=saved_calls) as client:
            (resumed,) = await client.open_calls()
            (block,) = (await resumed.result()).content
            assert block.type == "text"
            assert len(block.text) == LIMIT


class CountingBody(httpx2.AsyncByteStream):
    """A body that counts what is read of it."""

    def __init__(self, chunk: bytes, count: int) -> None:
        self.chunk = chunk
        self.count = count
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.count):
            self.read += 1
            yield self.chunk


async def test_reading_stops_at_the_limit() -> None:
    errors: list[ResponseTooLarge] = []
    body = CountingBody(b"x" * 1_000, 1_000)
    response = httpx2.Response(200, stream=body)
    await response_limiter(5_000, errors.append)(response)
    with pytest.raises(httpx2.StreamError):
        await response.aread()
    assert body.read == 6
    assert [error.size for error in errors] == [None]


@pytest.mark.parametrize("size", [50_000, 50_001])
async def test_the_limit_counts_decompressed_bytes(size: int) -> None:
    response = httpx2.Response(
        200, headers={"content-encoding": "gzip"}, stream=CountingBody(gzip.compress(b"x" * size), 1)
    )
    await response_limiter(50_000, lambda _: None)(response)
    if size > 50_000:
        with pytest.raises(httpx2.StreamError):
            await response.aread()
    else:
        assert await response.aread() == b"x" * size


async def test_a_line_on_a_unix_socket_is_limited() -> None:
    with short_folder() as folder:
        path = folder / "socket"
        async with anyio.create_task_group() as group:
            await group.start(partial(serve_unix, make_server(), path))
            async with TaskClient(lambda: unix_client(str(path), LIMIT), name="unix") as client:
                for _ in range(2):
                    await client.call_tool("text", {"size": LIMIT - 1_000})
                    with pytest.raises(ResponseTooLarge, match=f"{LIMIT:,}"):
                        await client.call_tool("text", {"size": LIMIT})
            group.cancel_scope.cancel()


async def serve_unix(server: ExampleServer, path: Path, *, task_status: TaskStatus[None]) -> None:
    await server.tasks.serve_unix(path, task_status=task_status)


def test_a_limit_that_allows_no_response_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_response_bytes is 0"):
        TaskClient("http://127.0.0.1:1/mcp", max_response_bytes=0)


def test_the_default_limit_of_the_command_line_is_that_of_the_client() -> None:
    from raincheck.cli.options import DEFAULT_MAX_RESPONSE_BYTES

    assert DEFAULT_MAX_RESPONSE_BYTES == MAX_RESPONSE_BYTES
