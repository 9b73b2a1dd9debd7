"""Stdio servers that break in some way: `python broken_servers.py MODE`. Uses only the standard library."""

import json
import sys
import time
from typing import Any

CAPABILITIES: dict[str, Any] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}}}
HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": CAPABILITIES,
    "serverInfo": {"name": "broken"},
}
TOOLS = {"tools": [{"name": "quick", "inputSchema": {}, "execution": {"taskSupport": "optional"}}]}


def write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(mode: str) -> None:
    if mode == "ends at once":
        sys.exit("no such store")
    if mode == "garbage":
        write("Welcome!")
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if mode == "garbage":
            write("<html>")
        elif mode == "silent":
            pass
        elif method == "initialize":
            write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": HELLO}))
        elif method == "tools/list":
            write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": TOOLS}))
        elif method == "tools/call":
            break_down(mode, message)
        elif "id" in message and mode != "hangs":
            write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}))


def break_down(mode: str, message: dict[str, object]) -> None:
    match mode:
        case "dies":
            sys.stderr.write("out of memory\n")
            sys.exit(3)
        case "hangs":
            time.sleep(3600)
        case "odd":
            # A string instead of the task object, and JSON that is not a message.
            write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"task": "soon"}}))
            write("[1, 2]")
        case _:
            write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": [1]}))


if __name__ == "__main__":
    main(sys.argv[1])
