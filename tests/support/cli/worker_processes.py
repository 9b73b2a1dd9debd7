"""Servers and workers as separate processes on one store."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cli.terminal import PATIENCE, environment

PROGRAM = str(Path(sys.executable).with_name("raincheck"))

SECRET = "sesame99"  # noqa: S105 - not a real password: the test servers accept any

REPORTS = """
import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer

from raincheck import TaskContext, Tasks


@asynccontextmanager
async def lifespan(server):
    yield {"press": "hot"}


mcp = MCPServer("reports", lifespan=lifespan)
tasks = Tasks(mcp, "reports.db", works=False, settings=replace(Tasks.DEFAULTS, grace=GRACE))


@tasks.tool(inline_for=0, expected=30)
async def who(ctx: Context) -> dict[str, object]:
    return {"pid": os.getpid(), **ctx.request_context.lifespan_context}


@tasks.tool(inline_for=0, expected=30)
async def hold(task: TaskContext) -> str:
    Path("held").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "let go"
"""


def write_reports(grace: float = 1.0) -> None:
    Path("reports.py").write_text(REPORTS.replace("GRACE", str(grace)), encoding="utf-8")


def with_password(url: str) -> str:
    return url.replace("postgres@", f"postgres:{SECRET}@")


@dataclass(frozen=True)
class ReadyProcess:
    """A process that has reported that it is ready."""

    process: "subprocess.Popen[str]"
    facts: dict[str, Any]

    def stop(self) -> tuple[int, str]:
        """Stop the process, and return its exit code and stderr."""
        self.process.terminate()
        _, printed = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, printed


@contextmanager
def start_process(*words: str) -> Generator[ReadyProcess]:
    process = subprocess.Popen(
        [PROGRAM, *words, "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        yield ReadyProcess(process, json.loads(process.stdout.readline()))
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
