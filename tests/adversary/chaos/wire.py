"""Callers of both protocol generations that know nothing but the wire: JSON-RPC over HTTP."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.adversary.chaos.evidence import Exchange, Generation, Message

EXTENSION, PREFIX = "io.modelcontextprotocol/tasks", "io.modelcontextprotocol/"
V2025: Generation = "2025-11-25"
V2026: Generation = "2026-07-28"
INFO = {"name": "chaos", "version": "1"}
CAPABILITIES: Mapping[str, Mapping[str, Any]] = {
    V2025: {"elicitation": {}, "tasks": {"requests": {}}},
    V2026: {"elicitation": {}, "extensions": {EXTENSION: {}}},
}
NAMED = ("tasks/get", "tasks/update", "tasks/cancel")

Answerer = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Returns the result of a request that the server made of the caller; None leaves it without an answer."""


def monotonic() -> float:
    """Seconds since boot: one clock for all processes, which no fault changes."""
    return time.monotonic()


@dataclass
class Wire:
    """Sends requests as one owner in one generation to one server, and records them."""

    http: httpx2.AsyncClient
    url: str
    owner: str
    generation: Generation
    record: list[Exchange]
    session: str | None = None
    _numbers: int = 0

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        is_probe: bool = False,
        answerer: Answerer | None = None,
        timeout: float = 15.0,  # noqa: ASYNC109 - how long this caller is patient
    ) -> Exchange:
        """Send a request. An exchange without an answer has neither a result nor an error."""
        exchange = Exchange(monotonic(), self.owner, self.generation, method, params, is_probe)
        self.record.append(exchange)
        try:
            async with asyncio.timeout(timeout):
                if self.generation == V2025 and self.session is None:
                    await self._initialize()
                await self._exchange(exchange, answerer)
        except (httpx2.HTTPError, TimeoutError, json.JSONDecodeError):
            pass
        return exchange

    async def _initialize(self) -> None:
        params = {"protocolVersion": V2025, "capabilities": CAPABILITIES[V2025], "clientInfo": INFO}
        async with self._post("initialize", params, 0) as response:
            await response.aread()
            self.session = response.headers.get("mcp-session-id")
        await self._notify("notifications/initialized", {})

    async def _exchange(self, exchange: Exchange, answerer: Answerer | None) -> None:
        self._numbers += 1
        number = self._numbers
        async with self._post(exchange.method, exchange.params, number) as response:
            if response.status_code == httpx2.codes.NOT_FOUND and self.generation == V2025:
                self.session = None  # the server that had it is gone
                return
            async for message in _messages(response):
                if message.get("id") == number and "method" not in message:
                    exchange.result, exchange.error = message.get("result"), message.get("error")
                    exchange.received_at = monotonic()
                elif "method" in message:
                    exchange.messages.append(Message(monotonic(), message["method"], message.get("params", {})))
                    if "id" in message and answerer is not None:
                        await self._answer(message, answerer)

    async def _answer(self, message: Mapping[str, Any], answerer: Answerer) -> None:
        result = answerer(message.get("params", {}))
        if result is not None:
            async with self._send({"jsonrpc": "2.0", "id": message["id"], "result": result}) as response:
                await response.aread()

    async def _notify(self, method: str, params: Mapping[str, Any]) -> None:
        async with self._send({"jsonrpc": "2.0", "method": method, "params": params}) as response:
            await response.aread()

    def _post(self, method: str, params: Mapping[str, Any], number: int) -> Any:
        params = dict(params)
        headers: dict[str, str] = {}
        if self.generation == V2026:
            params["_meta"] = {
                **params.get("_meta", {}),
                PREFIX + "protocolVersion": V2026,
                PREFIX + "clientInfo": INFO,
                PREFIX + "clientCapabilities": CAPABILITIES[V2026],
            }
            headers["mcp-method"] = method
            if method in NAMED:
                headers["mcp-name"] = params["taskId"]
            elif method == "tools/call":
                headers["mcp-name"] = params["name"]
        return self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, headers)

    def _send(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        common = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": self.generation,
            "authorization": f"Bearer {self.owner}",
        }
        if self.session is not None:
            common["mcp-session-id"] = self.session
        return self.http.stream("POST", self.url, json=body, headers={**common, **(headers or {})})


async def _messages(response: httpx2.Response) -> AsyncIterator[Mapping[str, Any]]:
    if "text/event-stream" not in response.headers.get("content-type", ""):
        body = await response.aread()
        if body:
            yield json.loads(body)
        return
    async for line in response.aiter_lines():
        if line.startswith("data:") and (data := line[5:].strip()):
            yield json.loads(data)
