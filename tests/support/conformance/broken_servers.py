"""Servers on the standard streams that break in some way: `python broken_servers.py WAY`. Standard library only."""

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


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(way: str) -> None:
    if way == "ends at once":
        sys.exit("no such store")
    if way == "garbage":
        say("Welcome!")
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if way == "garbage":
            say("<html>")
        elif way == "silent":
            pass
        elif method == "initialize":
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": HELLO}))
        elif method == "tools/list":
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": TOOLS}))
        elif method == "tools/call":
            break_down(way, message)
        elif "id" in message and way != "hangs":
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}))


def break_down(way: str, message: dict[str, object]) -> None:
    match way:
        case "dies":
            sys.stderr.write("out of memory\n")
            sys.exit(3)
        case "hangs":
            time.sleep(3600)
        case "odd":
            # A list where an object belongs, and a message that is none.
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"task": "soon"}}))
            say("[1, 2]")
        case _:
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": [1]}))


if __name__ == "__main__":
    main(sys.argv[1])
