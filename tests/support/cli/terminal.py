"""Servers in files, the program as a separate process, and a terminal to run it in."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from typer.testing import CliRunner

from raincheck.cli.app import program
from tests.support.fork_server import Preparation

PROGRAM = [sys.executable, "-c", "from raincheck.cli import main; main()"]

PATIENCE = 60.0
"""Timeout in seconds for any operation, on a busy machine."""

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"

SERVER = '''
import asyncio
import os
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from raincheck import TaskContext, Tasks

mcp = MCPServer("workshop")
tasks = Tasks(mcp, "tasks.db")


@tasks.tool(inline_for=0, expected=30)
async def build(
    parts: Annotated[int, Field(description="How many parts there are.")],
    task: TaskContext,
    colour: Literal["red", "blue"] = "red",
    tags: list[str] | None = None,
) -> dict[str, object]:
    """Build something of parts."""
    for part in range(parts):
        await task.progress(part, parts, f"part {part + 1}")
        while Path("hold").exists():
            await asyncio.sleep(0.02)
    return {"parts": parts, "colour": colour, "tags": tags or []}


@tasks.tool(inline_for=0, expected=30)
async def hold(task: TaskContext) -> str:
    """Wait until there is a file."""
    await task.progress(1, 4, "holding")
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "let go"


@tasks.tool(inline_for=0, expected=30)
async def publish(name: str, task: TaskContext) -> str:
    """Publish something, if it is wanted."""
    reply = await task.elicit(f"Publish {name}?", FORM)
    return f"{reply.action}: {reply.content}"


FORM = {
    "type": "object",
    "properties": {
        "sure": {"type": "boolean", "title": "Are you sure"},
        "size": {"type": "string", "enum": ["small", "large"], "default": "small"},
        "copies": {"type": "integer", "minimum": 1, "description": "How many to print."},
        "to": {"type": "array", "items": {"type": "string", "enum": ["web", "paper", "radio"]}},
    },
    "required": ["sure"],
}


@tasks.tool(inline_for=0, expected=30)
async def sign(task: TaskContext) -> str:
    """Ask for a name that may be empty."""
    form = {"type": "object", "properties": {"name": {"type": "string", "default": ""}}}
    return str((await task.elicit("Who?", form)).content)


@tasks.tool(inline_for=0, expected=30)
async def confirm(task: TaskContext) -> str:
    """Ask for a yes."""
    return (await task.elicit("Really?", {"type": "object", "properties": {}})).action


@tasks.tool(inline_for=0, expected=30)
async def visit(ctx: Context) -> str:
    """Send somebody to a page."""
    return (await ctx.elicit_url("Pay first.", "https://pay.example.com/order?id=7", "7")).action


@tasks.tool(inline_for=0, expected=30)
async def mischief(task: TaskContext) -> str:
    """Say what a terminal would obey."""
    await task.status("\x1b[2Jworking")
    await task.elicit("\x1b]0;mine\x07 ok?", {"type": "object", "properties": {}})
    return "\x1b[2Jdone"


@tasks.tool(inline_for=0, expected=30)
async def think(task: TaskContext) -> str:
    """Ask a model."""
    message = {"role": "user", "content": {"type": "text", "text": "Think."}}
    return (await task.sample([message], maxTokens=10))["content"]["text"]


class Choice(BaseModel):
    word: str


@tasks.tool(inline_for=0, expected=30)
async def several(task: TaskContext) -> str:
    """Ask two things at once."""
    asked = [task.elicit(message, Choice, name=message) for message in ("First?", "Second?")]
    return " and ".join(reply.value.word for reply in await asyncio.gather(*asked))


@mcp.tool()
async def choose(ctx: Context) -> str:
    """Ask, though it is no task."""
    reply = await ctx.elicit("Which one?", Choice)
    return f"it is {reply.data.word}"


@mcp.tool()
async def add(a: int, b: float = 1.5) -> float:
    """Add two numbers."""
    return a + b


@mcp.tool()
async def fail(how: str = "badly") -> str:
    """Fail at once."""
    raise ToolError(f"it failed {how}")


@mcp.tool()
async def die() -> str:
    """End the process of the server."""
    os._exit(7)


@mcp.tool()
async def linger() -> str:
    """Never end."""
    await asyncio.sleep(3600)
    return "never"


@tasks.tool(inline_for=0, expected=30)
async def crash() -> str:
    """Fail as a task."""
    raise ToolError("the press is broken")


if __name__ == "__main__":
    import sys
    print("the workshop opens", file=sys.stderr)
    mcp.run("stdio")
'''

COMMAND = f"{sys.executable} server.py"

OLDER_SERVER = """
import json
import subprocess
import sys
import threading

server = subprocess.Popen([sys.executable, "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def say(line):
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def pass_back():
    for line in server.stdout:
        say(line)


threading.Thread(target=pass_back).start()
for line in sys.stdin.buffer:
    message = json.loads(line)
    if message.get("method") == "server/discover":
        error = {"code": -32601, "message": "Method not found"}
        say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\\n")
    else:
        server.stdin.write(line)
        server.stdin.flush()
server.stdin.close()
server.wait()
"""
"""The same server, limited to versions up to 2025-11-25."""

OLDER_COMMAND = f"{sys.executable} older.py"


def environment(**more: str) -> dict[str, str]:
    """The environment of a command in the current folder, without settings of the user who runs the tests."""
    saved = {name: value for name, value in os.environ.items() if name not in ("RAINCHECK_STORE", "XDG_STATE_HOME")}
    return {**saved, "HOME": str(Path.cwd()), "TERM": "xterm", "COLUMNS": "100", **more}


@dataclass(frozen=True)
class CompletedCommand:
    """The output and the exit code of a command."""

    returncode: int
    stdout: str
    stderr: str


def run_in_process(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run the program in a separate process."""
    return subprocess.run(
        [*PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        check=False,
    )


def run(*words: str, given: str = "", env: Mapping[str, str] | None = None) -> CompletedCommand:
    """Run a command without a terminal, in this process, which is faster by a second."""
    # It would silence the logs for other tests, too.
    with patch("raincheck.cli.remote.session.silence_library_logs"):
        done = CliRunner().invoke(program, words, input=given, env=environment(**(env or {})))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CompletedCommand(done.exit_code, done.stdout, done.stderr)


@contextlib.contextmanager
def serving(*words: str, target: str = "server.py") -> Generator[str]:
    """Serve in the current folder, and yield the address."""
    process = subprocess.Popen(
        [*PROGRAM, "serve", target, "--json", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["at"]
    finally:
        process.terminate()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def list_saved_calls() -> list[dict[str, Any]]:
    """Return the saved calls."""
    done = run("wait", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TerminalSession:
    """A terminal in which the program runs."""

    def __init__(
        self, *words: str, env: Mapping[str, str] | None = None, ignored: signal.Signals | None = None
    ) -> None:
        # A program inherits which signals are ignored: SIGHUP under nohup, SIGINT in the background of a shell.
        default = {signal.SIGINT, signal.SIGHUP, signal.SIGTERM} - {ignored}
        preparation = Preparation(
            ignored_signals=() if ignored is None else (ignored,), default_signals=tuple(default), takes_terminal=True
        )
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self._slave = slave
        self._before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=preparation,
            env=environment(**(env or {})),
        )
        self.raw = ""
        self._seen = 0

    @property
    def text(self) -> str:
        """The printed text without escape sequences."""
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, words: str) -> Self:
        """Wait until a text is printed after the previously expected text."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.text.find(words, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{words!r} is not in {self.text[self._seen :]!r}"
            if not self._read(0.2) and self.process.poll() is not None:
                self._read(0)
                assert words in self.text[self._seen :], f"{words!r} is not in {self.text[self._seen :]!r}"
        self._seen = found + len(words)
        return self

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):
            self.raw += os.read(self._master, 65_536).decode(errors="replace")
        return True

    def type(self, text: str) -> Self:
        """Type a line."""
        os.write(self._master, f"{text}\n".encode())
        return self

    def press(self, key: str) -> Self:
        """Press Ctrl and a letter."""
        os.write(self._master, bytes([ord(key.upper()) - 64]))
        return self

    def end(self) -> int:
        """Wait for the end, and check that the terminal was restored."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read(0.1)
        while self._read(0.05):
            pass
        assert termios.tcgetattr(self._slave) == self._before
        assert self.raw.rfind(SHOWN) >= self.raw.rfind(HIDDEN)
        return self.process.returncode

    def hang_up(self) -> int:
        """Close the terminal, as a closed window or connection does, and wait for the end."""
        os.close(self._master)
        self._master = -1
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master >= 0:
            os.close(self._master)
        os.close(self._slave)


@contextlib.contextmanager
def at_terminal(
    *words: str, env: Mapping[str, str] | None = None, ignored: signal.Signals | None = None
) -> Generator[TerminalSession]:
    screen = TerminalSession(*words, env=env, ignored=ignored)
    try:
        yield screen
    finally:
        screen.close()
