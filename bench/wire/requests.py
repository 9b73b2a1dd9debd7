"""What is asked of servers, in the words of both generations, as bytes that are ready to be sent."""

import json
from collections.abc import Mapping
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

OWNERS = 100
"""Users who call in turns. One alone would be told to create less."""

Generation: TypeAlias = Literal["2026-07-28", "2025-11-25"]

_PREFIX = "io.modelcontextprotocol/"
_CLIENT: Mapping[str, object] = {"name": "bench", "version": "1"}
_ELICITS: Mapping[str, object] = {"elicitation": {"form": {}}}
_META: Mapping[str, object] = {
    f"{_PREFIX}protocolVersion": "2026-07-28",
    f"{_PREFIX}clientInfo": _CLIENT,
    f"{_PREFIX}clientCapabilities": {"extensions": {f"{_PREFIX}tasks": {}}, **_ELICITS},
}
_ACCEPTED: Mapping[str, object] = {"action": "accept", "content": {"sure": True}}


class Made(NamedTuple):
    """A task, and the number of its owner."""

    task_id: str
    owner: int


class Requests:
    """The requests to one server, in the words of one generation."""

    def __init__(self, port: int, generation: Generation) -> None:
        self.generation: Generation = generation
        self.session: str | None = None
        """2025 has sessions: where there is one, all requests name it."""
        self.port = port
        self._numbers = count(1)

    def initialize(self) -> bytes:
        params = {"protocolVersion": "2025-11-25", "clientInfo": _CLIENT, "capabilities": _ELICITS}
        return self._request("initialize", None, params, 0)

    def initialized(self) -> bytes:
        return self._message({"jsonrpc": "2.0", "method": "notifications/initialized"}, {}, 0)

    def call(self, tool: str, arguments: Mapping[str, object]) -> bytes:
        """A call. It says that it knows tasks where that is said of the client and not of the call."""
        return self._request("tools/call", tool, {"name": tool, "arguments": arguments}, 0)

    def create(self, tool: str, arguments: Mapping[str, object], owner: int) -> bytes:
        """A call whose answer is a task."""
        as_task: Mapping[str, object] = {"task": {}} if self.generation == "2025-11-25" else {}
        return self._request("tools/call", tool, {"name": tool, "arguments": arguments, **as_task}, owner)

    def get(self, made: Made) -> bytes:
        return self._about("tasks/get", made)

    def result(self, made: Made) -> bytes:
        """Only in 2025: the answer comes when the task has ended."""
        return self._about("tasks/result", made)

    def cancel(self, made: Made) -> bytes:
        return self._about("tasks/cancel", made)

    def update(self, made: Made, keys: Mapping[str, object]) -> bytes:
        """Only in 2026: answers to what is asked under these keys."""
        return self._about("tasks/update", made, inputResponses=dict.fromkeys(keys, _ACCEPTED))

    def listen(self, made: Made) -> bytes:
        """Only in 2026: be told of the task's changes."""
        return self._request("subscriptions/listen", None, {"notifications": {"taskIds": [made.task_id]}}, made.owner)

    def _about(self, method: str, made: Made, **params: object) -> bytes:
        return self._request(method, made.task_id, {"taskId": made.task_id, **params}, made.owner)

    def _request(self, method: str, named: str | None, params: Mapping[str, object], owner: int) -> bytes:
        if self.generation == "2026-07-28":
            params = {**params, "_meta": _META}
        head = {"mcp-method": method} | ({} if named is None else {"mcp-name": named})
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        return self._message(message, head, owner)

    def _message(self, message: Mapping[str, object], named: Mapping[str, str], owner: int) -> bytes:
        body = json.dumps(message).encode()
        head = {
            "host": f"127.0.0.1:{self.port}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": str(len(body)),
            "authorization": f"Bearer {owner}",
            "mcp-protocol-version": self.generation,
            **({} if self.session is None else {"mcp-session-id": self.session}),
            **named,
        }
        lines = ["POST /mcp HTTP/1.1", *(f"{key}: {value}" for key, value in head.items()), "", ""]
        return "\r\n".join(lines).encode() + body


class LineRequests(Requests):
    """The requests to a server that takes one message per line: those of 2026-07-28, without HTTP."""

    def __init__(self) -> None:
        super().__init__(0, "2026-07-28")

    def _message(self, message: Mapping[str, object], named: Mapping[str, str], owner: int) -> bytes:
        del named, owner
        return json.dumps(message).encode() + b"\n"
