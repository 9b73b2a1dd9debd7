"""What stands between a client and a server over HTTP, and answers in its place now and then."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raincheck.client import TaskClient
from tests.support.client.example_server import Server
from tests.support.http_server import served

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])

Between = Callable[[str, str | None], Response | None]
"""Says what is answered instead, by the method and the session of a request."""


class Proxy:
    """Stands before a server, and answers in its place now and then. What it hides has happened all the same."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.instead: Between = _nothing
        self.hides: set[str] = set()
        """Methods whose answers get lost, once."""
        self.asked: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        method = json.loads(body).get("method", "") if body else scope["method"]
        self.asked.append(method)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        instead = self.instead(method, headers.get("mcp-session-id"))
        if instead is not None:
            await instead(scope, receive, send)
        elif method in self.hides:
            self.hides.discard(method)
            await self.app(scope, _replay(body, receive), _swallow)
            await Response(status_code=502)(scope, receive, send)
        else:
            await self.app(scope, _replay(body, receive), send)


def _replay(body: bytes, receive: Receive) -> Receive:
    came: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return came.pop() if came else await receive()

    return again


def _nothing(method: str, session: str | None) -> None:
    del method, session


async def _swallow(message: Message) -> None:
    del message


@asynccontextmanager
async def between(
    server: Server, mode: str, hooks: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[tuple[TaskClient, Proxy]]:
    """A caller that the server can tell from others, by an HTTP client of its own."""
    proxy = Proxy(server.mcp.streamable_http_app())

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Any]:
        async with (
            httpx2.AsyncClient(
                headers={"authorization": "Bearer mine"}, timeout=30, trust_env=False, event_hooks=hooks
            ) as http,
            streamable_http_client(url, http_client=http) as streams,
        ):
            yield streams

    async with served(proxy) as url, TaskClient(connect, mode=mode, **options) as client:
        yield client, proxy


@asynccontextmanager
async def at_url(server: Server, mode: str, **options: Any) -> AsyncGenerator[tuple[TaskClient, Proxy]]:
    """A caller that has nothing but the address."""
    proxy = Proxy(server.mcp.streamable_http_app())
    async with served(proxy) as url, TaskClient(url, mode=mode, **options) as client:
        yield client, proxy
