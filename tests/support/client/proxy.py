"""A proxy between a client and a server over HTTP, which can respond in place of the server."""

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
from tests.support.client.example_server import ExampleServer
from tests.support.http_server import running_app

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])

Override = Callable[[str, str | None], Response | None]
"""Returns a response in place of the server's, by the method and the session of a request."""


class Proxy:
    """Forwards requests to a server, or responds in its place.

    A request has its effect even if its response is lost.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.override: Override = _nothing
        self.lost_responses: set[str] = set()
        """Methods whose next response is lost."""
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
        instead = self.override(method, headers.get("mcp-session-id"))
        if instead is not None:
            await instead(scope, receive, send)
        elif method in self.lost_responses:
            self.lost_responses.discard(method)
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
async def proxied_client(
    server: ExampleServer, mode: str, hooks: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[tuple[TaskClient, Proxy]]:
    """A client with a token, so that the server can identify it."""
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

    async with running_app(proxy) as url, TaskClient(connect, mode=mode, **options) as client:
        yield client, proxy


@asynccontextmanager
async def direct_client(server: ExampleServer, mode: str, **options: Any) -> AsyncGenerator[tuple[TaskClient, Proxy]]:
    """A client that uses only the URL."""
    proxy = Proxy(server.mcp.streamable_http_app())
    async with running_app(proxy) as url, TaskClient(url, mode=mode, **options) as client:
        yield client, proxy
