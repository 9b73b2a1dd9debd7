"""The requests to servers, in both protocol versions, as bytes that are ready to send."""

import json
from collections.abc import Mapping
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

OWNERS = 100
"""The users that calls alternate between. A single one would exceed its quota."""

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


class CreatedTask(NamedTuple):
    """A task, and the number of its owner."""

    task_id: str
    owner: int


class Requests:
    """The requests to one server, in one protocol version."""

    def __init__(self, port: int, generation: Generation) -> None:
        self.generation: Generation = generation
        self.session: str | None = None
        """The session of 2025, if there is one. All requests name it."""
        self.port = port
        self._numbers = count(1)

    def initialize(self) -> bytes:
        params = {"protocolVersion": "2025-11-25", "clientInfo": _CLIENT, "capabilities": _ELICITS}
        return self._request("initialize", None, params, 0)

    def initialized(self) -> bytes:
        return self._message({"jsonrpc": "2.0", "method": "notifications/initialized"}, {}, 0)

    def call(self, tool: str, arguments: Mapping[str, object]) -> bytes:
        """Return a call. In 2026, it declares support for tasks, since that is declared for the client."""
        return self._request("tools/call", tool, {"name": tool, "arguments": arguments}, 0)

    def create(self, tool: str, arguments: Mapping[str, object], owner: int) -> bytes:
        """Return a call whose answer is a task."""
        as_task: Mapping[str, object] = {"task": {}} if self.generation == "2025-11-25" else {}
        return self._request("tools/call", tool, {"name": tool, "arguments": arguments, **as_task}, owner)

    def get(self, task: CreatedTask) -> bytes:
        return self._task_request("tasks/get", task)

    def result(self, task: CreatedTask) -> bytes:
        """Return the request for the result, only in 2025: it is answered when the task has ended."""
        return self._task_request("tasks/result", task)

    def cancel(self, task: CreatedTask) -> bytes:
        return self._task_request("tasks/cancel", task)

    def update(self, task: CreatedTask, keys: Mapping[str, object]) -> bytes:
        """Return the answers to the input requests with these keys, only in 2026."""
        return self._task_request("tasks/update", task, inputResponses=dict.fromkeys(keys, _ACCEPTED))

    def listen(self, task: CreatedTask) -> bytes:
        """Return the request to subscribe to the task's changes, only in 2026."""
        return self._request("subscriptions/listen", None, {"notifications": {"taskIds": [task.task_id]}}, task.owner)

    def _task_request(self, method: str, task: CreatedTask, **params: object) -> bytes:
        return self._request(method, task.task_id, {"taskId": task.task_id, **params}, task.owner)

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
