"""What Streamable HTTP allows a server, the suite takes: streams that are resumed, none at all, ended sessions."""

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
from raincheck.conformance.outcome import ServerDisconnected
from tests.support.conformance.runs import PACE, ROLES
from tests.support.http_server import served

pytestmark = pytest.mark.anyio

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "streams"}}
EVENTS = "text/event-stream"
PATIENCE = 1.5


class Streams:
    """A server that answers `ping` in the ways that a stream can go."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.has_session = True
        self.waiting: Any = None
        self.hangs_in = ""

    async def post(self, request: Request) -> Response:
        message = await request.json()
        if message.get("method") == self.hangs_in:
            await asyncio.sleep(PATIENCE * 2)
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
                # Closed before the answer, with what it takes to come back for it.
                self.waiting = answer
                question = json.dumps({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
                return Response(f"id: e1\nretry: 20\ndata:\n\nid: e2\ndata: {question}\n\n", media_type=EVENTS)
            case _:
                return Response(status_code=202)

    async def get(self, request: Request) -> Response:
        if self.hangs_in == "GET":
            await asyncio.sleep(PATIENCE * 2)
        if "last-event-id" not in request.headers:
            return Response(status_code=405)
        self.seen.append(("GET", dict(request.headers)))
        return Response(f"id: e3\ndata: {json.dumps(self.waiting)}\n\n", media_type=EVENTS)

    async def delete(self, request: Request) -> Response:
        self.seen.append(("DELETE", dict(request.headers)))
        return Response(status_code=405)


@asynccontextmanager
async def connected(server: Streams, pace: Timings = PACE) -> AsyncGenerator[ConformanceClient]:
    routes = [Route("/mcp", getattr(server, method), methods=[method.upper()]) for method in ("post", "get", "delete")]
    async with served(Starlette(routes=routes), lifespan="off") as url:
        caller = await ConformanceClient.connect(
            ConformanceTarget(url, headers={"Authorization": "Bearer ada"}), ROLES, pace
        )
        try:
            yield caller
        finally:
            await caller.connection.close()


async def test_an_answer_that_comes_after_its_stream_was_closed_is_fetched() -> None:
    server = Streams()
    async with connected(server) as caller:
        reply = await caller.connection.request("ping")
    assert reply.result == {}
    (headers,) = [headers for what, headers in server.seen if what == "GET"]
    assert headers["last-event-id"] == "e2"


async def test_what_the_server_asks_is_answered_and_what_it_may_not_ask_is_refused() -> None:
    server = Streams()
    async with connected(server) as caller:
        await caller.connection.request("ping")
    assert "an answer" in [what for what, _ in server.seen]


async def test_session_version_and_credentials_go_with_every_request() -> None:
    server = Streams()
    async with connected(server) as caller:
        await caller.connection.request("ping")
    first, *others = [headers for _, headers in server.seen]
    assert "mcp-session-id" not in first
    assert {headers["mcp-session-id"] for headers in others} == {"one"}
    assert {headers["authorization"] for _, headers in server.seen} == {"Bearer ada"}
    assert {headers["mcp-protocol-version"] for headers in others} == {"2025-11-25"}
    assert server.seen[-1][0] == "DELETE"


async def test_a_session_that_the_server_ended_is_gone() -> None:
    server = Streams()
    async with connected(server) as caller:
        server.has_session = False
        with pytest.raises(ServerDisconnected, match="the server has ended the session: HTTP 404"):
            await caller.connection.request("ping")


async def test_a_server_that_does_not_take_a_notification_is_told_of() -> None:
    server = Streams()
    server.hangs_in = "notifications/initialized"
    with pytest.raises(CommunicationError, match=r"did not take notifications/initialized within 0\.3 s"):
        async with connected(server, Timings(timeout=0.3)):
            pass


async def test_a_stream_that_begins_late_is_not_waited_for() -> None:
    server = Streams()
    server.hangs_in = "GET"
    async with connected(server):
        assert [what for what, _ in server.seen] == ["initialize", "notifications/initialized", "tools/list"]
