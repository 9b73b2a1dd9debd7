"""The HTTP transport of the suite handles resumed streams, missing streams and ended sessions."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from raincheck.conformance import CommunicationError, ConformanceTarget, Timings
from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.connection import ServerDisconnected
from tests.support.conformance.runs import ROLES, TIMINGS
from tests.support.http_server import running_app

pytestmark = pytest.mark.anyio

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "streams"}}
EVENTS = "text/event-stream"
HANG_SECONDS = 1.5


class StreamServer:
    """A server that answers `ping` on streams that end early, that it resumes, or that do not exist."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.has_session = True
        self.waiting: Any = None
        self.hangs_in = ""

    async def post(self, request: Request) -> Response:
        message = await request.json()
        if message.get("method") == self.hangs_in:
            await asyncio.sleep(HANG_SECONDS * 2)
        self.seen.append((message.get("method", "an answer"), dict(request.headers)))
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id"), "result": {}}
        match message.get("method"):
            case "initialize":
                return JSONResponse({**answer, "result": HELLO}, headers={"MCP-Session-Id": "one"})
            case "tools/list":
                return JSONResponse({**answer, "result": {"tools": []}})
            case "ping" if not self.has_session:
                return Response(status_code=404)
            case "ping":
                # The stream closes before the response, with the event id to resume it by.
                self.waiting = answer
                question = json.dumps({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
                return Response(f"id: e1\nretry: 20\ndata:\n\nid: e2\ndata: {question}\n\n", media_type=EVENTS)
            case _:
                return Response(status_code=202)

    async def get(self, request: Request) -> Response:
        if self.hangs_in == "GET":
            await asyncio.sleep(HANG_SECONDS * 2)
        if "last-event-id" not in request.headers:
            return Response(status_code=405)
        self.seen.append(("GET", dict(request.headers)))
        return Response(f"id: e3\ndata: {json.dumps(self.waiting)}\n\n", media_type=EVENTS)

    async def delete(self, request: Request) -> Response:
        self.seen.append(("DELETE", dict(request.headers)))
        return Response(status_code=405)


@asynccontextmanager
async def connected(server: StreamServer, timings: Timings = TIMINGS) -> AsyncGenerator[ConformanceClient]:
    routes = [Route("/mcp", getattr(server, method), methods=[method.upper()]) for method in ("post", "get", "delete")]
    async with running_app(Starlette(routes=routes), lifespan="off") as url:
        caller = ConformanceClient(ConformanceTarget(url, headers={"Authorization": "Bearer ada"}), ROLES, timings)
        await caller.connect()
        try:
            yield caller
        finally:
            await caller.close()


async def test_a_response_after_its_stream_was_closed_is_fetched() -> None:
    server = StreamServer()
    async with connected(server) as caller:
        reply = await caller.request("ping")
    assert reply.result == {}
    (headers,) = [headers for name, headers in server.seen if name == "GET"]
    assert headers["last-event-id"] == "e2"


async def test_unsupported_requests_of_the_server_are_answered_with_an_error() -> None:
    server = StreamServer()
    async with connected(server) as caller:
        await caller.request("ping")
    assert "an answer" in [name for name, _ in server.seen]


async def test_session_version_and_credentials_go_with_every_request() -> None:
    server = StreamServer()
    async with connected(server) as caller:
        await caller.request("ping")
    first, *later = [headers for _, headers in server.seen]
    assert "mcp-session-id" not in first
    assert {headers["mcp-session-id"] for headers in later} == {"one"}
    assert {headers["authorization"] for _, headers in server.seen} == {"Bearer ada"}
    assert {headers["mcp-protocol-version"] for headers in later} == {"2025-11-25"}
    assert server.seen[-1][0] == "DELETE"


async def test_a_session_that_the_server_ended_is_gone() -> None:
    server = StreamServer()
    async with connected(server) as caller:
        server.has_session = False
        with pytest.raises(ServerDisconnected, match="the server has ended the session: HTTP 404"):
            await caller.request("ping")


async def test_a_server_that_does_not_accept_a_notification_is_reported() -> None:
    server = StreamServer()
    server.hangs_in = "notifications/initialized"
    with pytest.raises(CommunicationError, match=r"did not accept notifications/initialized within 0\.3 s"):
        async with connected(server, Timings(timeout=0.3)):
            pass


async def test_connecting_does_not_wait_for_a_slow_get_stream() -> None:
    server = StreamServer()
    server.hangs_in = "GET"
    async with connected(server):
        assert [name for name, _ in server.seen] == ["initialize", "notifications/initialized", "tools/list"]
