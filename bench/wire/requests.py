"""What is asked of servers, in the words of 2026-07-28, as bytes that are ready to be sent."""

import json
from collections.abc import Mapping

VERSION = "2026-07-28"
TOOL = "answer"

_PREFIX = "io.modelcontextprotocol/"
_META: Mapping[str, object] = {
    f"{_PREFIX}protocolVersion": VERSION,
    f"{_PREFIX}clientInfo": {"name": "bench", "version": "1"},
    f"{_PREFIX}clientCapabilities": {"extensions": {f"{_PREFIX}tasks": {}}},
}


def call(port: int, number: int) -> bytes:
    """A call of the tool that all servers have."""
    return _request(port, number, "tools/call", TOOL, {"name": TOOL, "arguments": {"number": number}})


def get(port: int, number: int, task_id: str) -> bytes:
    """How a task is."""
    return _request(port, number, "tasks/get", task_id, {"taskId": task_id})


def _request(port: int, number: int, method: str, name: str, params: Mapping[str, object]) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": _META}}
    body = json.dumps(message).encode()
    head = {
        "host": f"127.0.0.1:{port}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": str(len(body)),
        "mcp-protocol-version": VERSION,
        "mcp-method": method,
        "mcp-name": name,
    }
    lines = ["POST /mcp HTTP/1.1", *(f"{key}: {value}" for key, value in head.items()), "", ""]
    return "\r\n".join(lines).encode() + body
