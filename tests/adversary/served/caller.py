"""A caller with good manners, beside the attackers: it must be served, whatever they do."""

import json
from itertools import count
from typing import Any

from tests.adversary.served.http import HttpResponse, events, exchange, request_bytes

PREFIX = "io.modelcontextprotocol/"
EXTENSION = f"{PREFIX}tasks"
V2026 = "2026-07-28"
CAPABILITIES: dict[str, Any] = {"extensions": {EXTENSION: {}}, "elicitation": {}, "sampling": {}}

PATIENCE = 300.0
"""Seconds to wait for one answer. Only a server that has stopped to answer takes as long."""

NAMED_BY = {"tools/call": "name", "tasks/get": "taskId", "tasks/cancel": "taskId", "tasks/update": "taskId"}

_ids = count(1)


class Unanswered(Exception):
    """A request got no answer, or one that can't be read."""


class Refused(Exception):
    """A request was answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code = error.get("code")
        self.data: Any = error.get("data")


class PoliteCaller:
    """A caller of 2026-07-28 over HTTP, which makes a new connection for each request."""

    def __init__(self, port: int, authorization: str | None, patience: float = PATIENCE) -> None:
        self._port = port
        self._authorization = authorization
        self._patience = patience

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result.

        Raises:
            Unanswered: no answer arrived.
            Refused: the answer is an error.
        """
        response = await exchange(self._port, self.encode(method, params or {}), self._patience)
        answer = answer_in(response)
        if answer is None:
            raise Unanswered(f"{method}: HTTP {response.status} {response.problem} {response.body[:300]!r}")
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def encode(self, method: str, params: dict[str, Any]) -> bytes:
        """Return the bytes of a request."""
        meta: dict[str, Any] = {
            f"{PREFIX}protocolVersion": V2026,
            f"{PREFIX}clientInfo": {"name": "polite", "version": "1"},
            f"{PREFIX}clientCapabilities": CAPABILITIES,
        }
        headers = [
            (b"host", b"127.0.0.1:80"),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"mcp-protocol-version", V2026.encode()),
            (b"mcp-method", method.encode()),
        ]
        if method in NAMED_BY:
            headers.append((b"mcp-name", str(params[NAMED_BY[method]]).encode()))
        if self._authorization is not None:
            headers.append((b"authorization", self._authorization.encode()))
        message = {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": {**params, "_meta": meta}}
        return request_bytes(b"POST", b"/mcp", headers, json.dumps(message).encode())

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await self.request("tools/call", {"name": tool, "arguments": arguments})

    async def start(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool whose calls become tasks, and return the id of the task."""
        return str((await self.call(tool, arguments))["taskId"])

    async def get(self, task_id: str) -> dict[str, Any]:
        return await self.request("tasks/get", {"taskId": task_id})


def answer_in(response: HttpResponse) -> dict[str, Any] | None:
    """Return the answer that a response contains, if it contains one."""
    found = events(response.body) if response.content_type == "text/event-stream" else [response.body]
    for data in found:
        try:
            message = json.loads(data)
        except ValueError:
            continue
        if isinstance(message, dict) and "method" not in message:
            return message  # pyright: ignore[reportUnknownVariableType]
    return None
