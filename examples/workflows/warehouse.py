"""A fake warehouse to try export.yaml with, whose imports take a while: `python3 warehouse.py PORT`."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Warehouse(ThreadingHTTPServer):
    """Stores uploads, and imports them."""

    def __init__(self, port: int, *, polls_needed: int = 2) -> None:
        super().__init__(("127.0.0.1", port), WarehouseHandler)
        self.polls_needed = polls_needed
        """How many polls of an import it takes until the import is done."""
        self.busy = 0
        """How many uploads it rejects as busy before it accepts one."""
        self.uploads: dict[str, str] = {}
        self.imports: list[int] = []
        """How often each import was polled."""
        self.end = "done"
        self.messages: list[str] = []


class WarehouseHandler(BaseHTTPRequestHandler):
    """Handles one request."""

    server: Warehouse  # pyright: ignore[reportIncompatibleVariableOverride] - only a Warehouse creates handlers

    def do_PUT(self) -> None:
        if not self._is_authorized():
            return
        text = self._read()
        if self.server.busy:
            self.server.busy -= 1
            self._answer(503, {"error": "busy"})
        else:
            self.server.uploads[self.path.rpartition("/")[2]] = text
            self._answer(201, {})

    def do_POST(self) -> None:
        body = json.loads(self._read())
        if self.path == "/messages":
            self.server.messages.append(body["text"])
            print(body["text"], file=sys.stderr)
            self._answer(200, {})
        elif self._is_authorized():
            self.server.imports.append(0)
            self._answer(202, {"id": len(self.server.imports) - 1})

    def do_GET(self) -> None:
        if not self._is_authorized():
            return
        number = int(self.path.rpartition("/")[2])
        self.server.imports[number] += 1
        is_done = self.server.imports[number] >= self.server.polls_needed
        self._answer(200, {"state": self.server.end if is_done else "running"})

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _is_authorized(self) -> bool:
        if self.headers.get("authorization") == "Bearer secret":
            return True
        self._answer(401, {"error": "who are you?"})
        return False

    def _read(self) -> str:
        return self.rfile.read(int(self.headers.get("content-length", "0"))).decode()

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    Warehouse(int(sys.argv[1])).serve_forever()
