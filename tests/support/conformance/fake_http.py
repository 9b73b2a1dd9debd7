"""Serves the fake server over Streamable HTTP, in this event loop."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import Message
from tests.support.http_server import running_app

STREAMED = ("tools/call", "tasks/result")
"""Methods that are answered on a stream; all others are answered with JSON."""

Stream = asyncio.Queue[Message | None]


class HttpSession:
    """The session of a client, with its streams by the requests that opened them."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.capabilities: Message = {}
        self.streams: dict[object, Stream] = {None: asyncio.Queue()}

    async def send(self, message: Message, of: object = None) -> None:
        stream = self.streams.get(of, self.streams[None])
        stream.put_nowait(message)


class FakeHttp:
    """The endpoint. It identifies a client by its `Authorization` header, or else by its session."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.sessions: dict[str, HttpSession] = {}

    async def post(self, request: Request) -> Response:
        message: Message = await request.json()
        key = request.headers.get("mcp-session-id", "")
        if message.get("method") == "initialize":
            key = secrets.token_hex(16)
            self.sessions[key] = HttpSession(request.headers.get("authorization", key))
        session = self.sessions.get(key)
        if session is None:
            return Response(status_code=404)
        if "id" not in message or "method" not in message:
            await self.server.handle(session, message)
            return Response(status_code=202)
        stream: Stream = asyncio.Queue()
        session.streams[message["id"]] = stream
        await self.server.handle(session, message)
        if self.is_streamed(message["method"]):
            events = self.events(session, stream, message["id"])
            return StreamingResponse(events, media_type="text/event-stream")
        answer = await stream.get()
        del session.streams[message["id"]]
        return JSONResponse(answer, headers={"mcp-session-id": key})

    def is_streamed(self, method: str) -> bool:
        return method in getattr(self.server, "streamed", STREAMED)

    async def events(self, session: HttpSession, stream: Stream, request_id: object) -> AsyncIterator[str]:
        yield f"id: {secrets.token_hex(4)}\ndata:\n\n"
        try:
            while True:
                message = await stream.get()
                yield f"event: message\ndata: {json.dumps(message)}\n\n"
                if message is None or "method" not in message:
                    return
        finally:
            session.streams.pop(request_id, None)
            drop = getattr(self.server, "dropped", None)
            if drop is not None:
                drop(session, request_id)

    async def listen(self, request: Request) -> Response:
        session = self.sessions.get(request.headers.get("mcp-session-id", ""))
        if session is None:
            return Response(status_code=404)
        return StreamingResponse(self.unsolicited(session), media_type="text/event-stream")

    async def unsolicited(self, session: HttpSession) -> AsyncIterator[str]:
        yield ": here\n\n"
        while (message := await session.streams[None].get()) is not None:
            yield f"data: {json.dumps(message)}\n\n"

    async def leave(self, request: Request) -> Response:
        session = self.sessions.pop(request.headers.get("mcp-session-id", ""), None)
        if session is not None:
            session.streams[None].put_nowait(None)
            self.server.leave(session)
        return Response(status_code=204)

    async def close(self) -> None:
        for session in self.sessions.values():
            session.streams[None].put_nowait(None)
        await self.server.close()


@asynccontextmanager
async def over_http(server: FakeServer) -> AsyncGenerator[str]:
    """Serve a fake server, and yield its URL."""
    http = FakeHttp(server)
    routes = [
        Route("/mcp", http.post, methods=["POST"]),
        Route("/mcp", http.listen, methods=["GET"]),
        Route("/mcp", http.leave, methods=["DELETE"]),
    ]
    async with running_app(Starlette(routes=routes), lifespan="off") as url:
        try:
            yield url
        finally:
            await http.close()
