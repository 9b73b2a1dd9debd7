"""The Unix socket examples of the docs work: alone, together with HTTP, and called with socat."""

import asyncio
import os
import re
import runpy
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.support.docs.pages import ROOT, text_of

pytestmark = pytest.mark.anyio

PAGE = text_of(ROOT / "docs/howto/deploy-a-server.md")
PROGRAM = ROOT / "docs_src/unix_socket.py"

SOCAT = f"""#!{sys.executable}
import asyncio, sys

async def pump(reader, write, end):
    while piece := await reader.read(65536):
        await write(piece)
    end()

async def main():
    dash, address = sys.argv[1:]
    assert dash == "-"
    reader, writer = await asyncio.open_unix_connection(address.removeprefix("UNIX-CONNECT:"))
    async def send(piece):
        writer.write(piece)
    async def show(piece):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    await asyncio.gather(pump(stdin, send, writer.write_eof), pump(reader, show, lambda: None))

asyncio.run(main())
"""
"""A fake with the features that the page uses, since not every machine has socat."""


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Disable the check: the programs import modules and read files."""


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:
        monkeypatch.chdir(folder)
        socat = Path(folder, "socat")
        socat.write_text(SOCAT)
        socat.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        yield Path(folder)
        monkeypatch.undo()


async def until_up(path: str = "reports.sock") -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(path)
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


def command() -> list[str]:
    """Return the command with which the page connects."""
    (line,) = re.findall(r"^socat .*$", PAGE, re.MULTILINE)
    return line.split()


async def test_the_program_serves_until_a_signal() -> None:
    program = await asyncio.create_subprocess_exec(sys.executable, PROGRAM)
    try:
        await until_up()
        first, *arguments = command()
        async with Client(StdioServerParameters(command=first, args=arguments, env=dict(os.environ))) as client:
            result = await client.call_tool("greet", {"name": "Ada"})
            assert result.structured_content == {"result": "Hello, Ada!"}
        program.terminate()
        assert await asyncio.wait_for(program.wait(), 60) == 0
        assert not [name for name in os.listdir() if name.startswith("reports.sock")]  # noqa: PTH208 - of two files
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


async def test_the_request_on_the_page_is_answered() -> None:
    (line,) = re.findall(r"^\{\"jsonrpc\".*$", PAGE, re.MULTILINE)
    program = await asyncio.create_subprocess_exec(sys.executable, PROGRAM)
    try:
        await until_up()
        pipe = asyncio.subprocess.PIPE
        socat = await asyncio.create_subprocess_exec(*command(), stdin=pipe, stdout=pipe)
        assert socat.stdin is not None
        assert socat.stdout is not None
        socat.stdin.write(f"{line}\n".encode())
        answer = await socat.stdout.readline()
        assert b'"id":1' in answer
        assert b"Hello, Ada!" in answer
        socat.stdin.close()
        assert await socat.wait() == 0
    finally:
        program.kill()
        await program.wait()


async def test_the_application_serves_both_transports_and_stops_both_at_a_signal() -> None:
    app = runpy.run_path(str(PROGRAM))["app"]
    bound = uvicorn.Config(app, log_level="warning", port=0, lifespan="on").bind_socket()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        await until_up()
        first, *arguments = command()
        parameters = StdioServerParameters(command=first, args=arguments, env=dict(os.environ))
        async with Client(f"http://127.0.0.1:{bound.getsockname()[1]}/mcp") as http, Client(parameters) as unix:
            for client in (http, unix):
                result = await client.call_tool("greet", {"name": "Ada"})
                assert result.structured_content == {"result": "Hello, Ada!"}
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(serving, 20)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not [name for name in os.listdir() if name.startswith("reports.sock")]  # noqa: PTH208 - of two files
