"""Servers of other libraries that tests connect to: programs in `tests/peers`, each in its own environment.

`scripts/setup` creates the environments from the requirements in `tests/peers`. If one is missing, its tests are
skipped with a reason; in continuous integration (`CI=true`) they fail.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from mcp.client.stdio import StdioServerParameters

from tests.support import ROOT

SCRIPTS = ROOT / "tests/peers"
ENVIRONMENTS = ROOT / ".peers"


@dataclass(frozen=True)
class Peer:
    """A server of another library."""

    name: str
    version: str
    """The protocol version in which it supports tasks."""

    @property
    def script(self) -> Path:
        return SCRIPTS / f"{self.name}_server.py"

    def python(self) -> Path:
        """Return the interpreter that has the library. Skips or fails the test if there is none."""
        # Written once everything is installed.
        if (ENVIRONMENTS / self.name / ".fits").exists():
            return ENVIRONMENTS / self.name / "bin" / "python"
        reason = f"there is no environment for the peer {self.name}: scripts/setup makes it from {self.name}.txt"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    def on_stdio(self) -> StdioServerParameters:
        """Return the parameters to start it on stdio: `Client(stdio_client(peer.on_stdio()))`."""
        return StdioServerParameters(command=str(self.python()), args=[str(self.script)])

    @contextmanager
    def on_http(self) -> Generator[str]:
        """Start it on a free port. Yields its URL."""
        with Popen([self.python(), self.script, "--http"], stdout=PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                port = process.stdout.readline().strip()
                assert port, f"the peer {self.name} did not start"
                yield f"http://127.0.0.1:{port}/mcp"
            finally:
                process.kill()  # it has nothing to close, and may have open connections


MCP1 = Peer("mcp1", "2025-11-25")
FASTMCP4 = Peer("fastmcp4", "2026-07-28")
