"""Server processes on Unix sockets: killed, stopped by signals, started twice, and called by other users."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raincheck.core.lifecycle import Phase
from tests.server.lifecycle.test_stop import kept_in
from tests.support import ROOT
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.unix import example_server
from tests.support.server.unix.transports import (
    listening,
    names_in,
    over_unix,
    peer_at,
    program,
    short_folder,
    until_up,
)

pytestmark = pytest.mark.anyio

CONFORMANCE = ROOT / "examples/conformance.py"

NOBODY = 65_534
AS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 and not os.environ.get("CI"),
    reason="ONLY ROOT can become another user: that other users are refused was NOT TESTED here",
)


@pytest.fixture
def path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "ended.sock"


@asynccontextmanager
async def serving(path: Path, grace: float = 0.2) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A server that runs, and can be called."""
    store = path.parent / "tasks.db"
    async with program(example_server.__file__, path, store, grace, stdout=asyncio.subprocess.PIPE) as server:
        await until_up(path, server)
        yield server


async def line_of(server: asyncio.subprocess.Process) -> str:
    assert server.stdout is not None
    return (await server.stdout.readline()).decode().strip()


async def test_the_next_server_takes_over_the_socket_and_tasks_of_a_killed_one(path: Path) -> None:
    async with serving(path) as first, over_unix(path) as transport:
        task_id = await Caller(transport).start("wait")
        assert await line_of(first) == f"{task_id} waits"
        first.kill()
        await first.wait()
    assert path.name in names_in(path.parent)
    async with serving(path) as second, over_unix(path) as transport:
        assert await line_of(second) == f"{task_id} waits"
        assert (await Caller(transport).get(task_id))["status"] == "working"


async def test_of_two_servers_that_start_at_a_dead_servers_path_one_serves(
    path: Path,
) -> None:
    async with serving(path) as first:
        first.kill()
        await first.wait()
    arguments = (CONFORMANCE, "--unix", path, "--store", path.parent / "tasks.db")
    pipe = asyncio.subprocess.PIPE
    async with program(*arguments, stderr=pipe) as one, program(*arguments, stderr=pipe) as another:
        ends = {asyncio.create_task(process.communicate()): process for process in (one, another)}
        (ended,), (serves,) = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert ends[ended].returncode == 1
        assert f"ConfigurationError: another server listens at '{path}'" in ended.result()[1].decode()
        await until_up(path, ends[serves])
        async with over_unix(path) as transport:
            assert "tools" in await Caller(transport).request("tools/list")
        ends[serves].terminate()
        await serves
        assert ends[serves].returncode == 0
    assert names_in(path.parent) == {"tasks.db"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_that_gets_a_stop_signal_hands_its_tasks_back_and_leaves_no_files(
    path: Path, number: signal.Signals
) -> None:
    async with serving(path) as server, over_unix(path) as transport, peer_at(path) as idle:
        task_id = await Caller(transport).start("wait")
        assert await line_of(server) == f"{task_id} waits"
        server.send_signal(number)
        assert await asyncio.wait_for(server.wait(), 60) == 0
        assert await line_of(server) == f"{task_id} stopped"
        assert await idle.rest() == b""
    assert names_in(path.parent) == {"tasks.db"}
    async with serving(path) as server:
        # It was handed back, so it starts before its lease would expire.
        assert await line_of(server) == f"{task_id} waits"


async def test_a_second_signal_skips_the_grace_period(path: Path) -> None:
    async with serving(path, grace=600) as server, over_unix(path) as transport, peer_at(path) as idle:
        await Caller(transport).start("wait")
        await line_of(server)
        server.terminate()
        # Connections are ended first, and then bodies are waited for.
        assert await idle.rest() == b""
        ending = asyncio.create_task(server.wait())
        while not ending.done():
            server.terminate()
            await asyncio.wait([ending], timeout=0.3)
    # The last of them may have come when nothing was left to be done.
    assert ending.result() in (0, -signal.SIGTERM)
    (task,) = await kept_in(path.parent / "tasks.db")
    assert (task.phase, task.attempt) == (Phase.QUEUED, None)


async def test_a_server_that_gets_a_stop_signal_while_it_starts_leaves_no_files(path: Path) -> None:
    async with program(example_server.__file__, path, path.parent / "tasks.db", 0.2) as server:
        async with asyncio.timeout(30):
            while path.name not in names_in(path.parent):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0)
        server.terminate()
        assert await asyncio.wait_for(server.wait(), 60) == 0
    assert names_in(path.parent) <= {"tasks.db"}


STRANGER = """
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
os.setgroups([]), os.setgid(65534), os.setuid(65534)
connection.connect(sys.argv[1])
try:
    connection.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n')
    heard = connection.recv(1000)
except (BrokenPipeError, ConnectionResetError):
    heard = b""
print(os.geteuid(), heard)
"""


@AS_ROOT
async def test_other_users_are_refused_though_the_mode_of_the_file_lets_them_in(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    example_server = ExampleServer()
    async with listening(example_server.tasks, path), over_unix(path) as transport:
        await asyncio.to_thread(path.parent.chmod, 0o755)
        await asyncio.to_thread(path.chmod, 0o666)
        async with program("-c", STRANGER, path, stdout=asyncio.subprocess.PIPE) as stranger:
            output, _ = await stranger.communicate()
        assert output.decode().strip() == f"{NOBODY} b''"
        assert f"it belongs to user {NOBODY}" in caplog.text
        assert "tools" in await Caller(transport).request("tools/list")


NOT_WRITABLE = """
import os, sys
from raincheck.errors import ConfigurationError
from raincheck.server.unix.bind import SocketLock
os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    SocketLock(sys.argv[1]).acquire()
except ConfigurationError as error:
    print(error)
"""


@AS_ROOT
async def test_a_folder_that_can_not_be_written_is_named(path: Path) -> None:
    path.parent.chmod(0o755)
    async with program("-c", NOT_WRITABLE, path, stdout=asyncio.subprocess.PIPE) as stranger:
        output, _ = await stranger.communicate()
    assert (
        output.decode().strip()
        == f"can't listen at '{path}': this user has no permission: choose a folder that this user can write to"
    )


@pytest.mark.parametrize("others", [("--transport", "stdio"), ("--transport", "http")])
async def test_the_example_serves_in_one_way_at_a_time(path: Path, others: tuple[str, str]) -> None:
    arguments = (CONFORMANCE, "--unix", path, *others)
    async with program(*arguments, stderr=asyncio.subprocess.PIPE) as example:
        _, output = await example.communicate()
    assert example.returncode == 2
    assert "not allowed with argument --unix" in output.decode()
