"""Callers without tasks over stdio and Unix sockets, and with a server that is killed during a call."""

import asyncio
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from raincheck.clock import SystemClock
from tests.support.server.caller_v2025 import V2025Caller, connected
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.fallback import example_server
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    FALLBACK_TOOL_NAMES,
    MODERN,
    Model,
    model_text,
    next_call,
    task_id_of,
)
from tests.support.server.transports import HttpTransport, Message, over_stdio
from tests.support.server.transports_v2025 import V2025HttpTransport, V2025StreamTransport, v2025_stdio
from tests.support.server.unix.transports import over_unix, program, short_folder, until_up

pytestmark = pytest.mark.anyio

SERVER = Path(example_server.__file__)
WAIT = 1.0
REPORT: dict[str, Any] = {"year": 2026, "first": {"title": "one", "pages": [{"title": "two", "pages": []}]}}


async def use_every_tool(model: Model) -> None:
    """Call a tool, wait, and get the result. Answer a question. Find a lost task, and cancel it."""
    assert set(FALLBACK_TOOL_NAMES) < set(await model.tools())
    answer = await model.call("build_report", {"year": 2026, "seconds": 1.5 * WAIT})
    assert next_call(answer)[0] == "task_wait"
    while "next" in answer["structuredContent"]:
        answer = await model.call_next(answer)
    assert answer["structuredContent"] == REPORT

    asked = await model.call("publish")
    assert model_text(await model.call_next(asked, sure=True)) == "published"

    lost = task_id_of(await model.call("draw", {"seconds": 600}))
    (found,) = (await model.call("task_status", {"tool": "draw"}))["structuredContent"]["tasks"]
    assert found["task_id"] == lost
    assert (await model.call("task_cancel", {"task_id": lost}))["structuredContent"]["status"] == "cancelled"
    # Allow a few seconds for a call and its answer to arrive.
    assert max(model.open_for) < WAIT + 5


def arguments(store: Path) -> tuple[str, ...]:
    return "--store", str(store), "--wait", str(WAIT)


@BY_VERSIONS
async def test_all_of_it_on_the_standard_streams(version: str, tmp_path: Path) -> None:
    options = ("--transport", "stdio", *arguments(tmp_path / "tasks.db"))
    if version == MODERN:
        async with over_stdio(SERVER, *options) as transport:
            await use_every_tool(Model(Caller(transport, capabilities={}), SystemClock()))
        return
    async with (
        v2025_stdio(SERVER, *options) as transport,
        connected(transport, version=version, capabilities={}) as caller,
    ):
        await use_every_tool(Model(caller, SystemClock()))


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
async def test_all_of_it_on_a_unix_socket(version: str) -> None:
    with short_folder() as folder:
        options = ("--unix", folder / "plain.sock", *arguments(folder / "tasks.db"))
        async with program(SERVER, *options) as process:
            await until_up(folder / "plain.sock", process)
            async with over_unix(folder / "plain.sock") as transport:
                if version == MODERN:
                    await use_every_tool(Model(Caller(transport, capabilities={}), SystemClock()))
                    return
                async with connected(V2025StreamTransport(transport), version=version, capabilities={}) as caller:
                    await use_every_tool(Model(caller, SystemClock()))


class RestartableServer:
    """A store file, a diary, and a server on one port that can be killed and restarted."""

    def __init__(self, folder: Path) -> None:
        self.store, self.diary = folder / "tasks.db", folder / "diary"
        with socket.create_server(("127.0.0.1", 0)) as bound:
            self.port: int = bound.getsockname()[1]
        self.server: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        options = ("--port", str(self.port), "--diary", str(self.diary), *arguments(self.store))
        self.server = await asyncio.create_subprocess_exec(sys.executable, str(SERVER), *options)
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)  # another process, so there is nothing to wait on but time
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    async def kill(self) -> None:
        assert self.server is not None
        server, self.server = self.server, None
        server.kill()
        assert await server.wait() == -signal.SIGKILL

    def lines(self) -> list[str]:
        return self.diary.read_text().splitlines() if self.diary.exists() else []

    async def wait_for_line(self, line: str) -> None:
        """Wait until the server has written this line."""
        async with asyncio.timeout(20):
            while line not in await asyncio.to_thread(self.lines):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def host(self, version: str) -> AsyncGenerator[Model]:
        """A host that is not verified, but recognized by the header that it sends."""
        headers = {"authorization": "Bearer of mine"}
        url = f"http://127.0.0.1:{self.port}/mcp"
        async with httpx2.AsyncClient(timeout=300, trust_env=False) as client:
            if version == MODERN:
                yield Model(Caller(HttpTransport(url, client), capabilities={}, headers=headers), SystemClock())
                return
            transport = V2025HttpTransport(url, client, headers)
            caller = V2025Caller(transport, capabilities={}, version=version)
            await caller.greet()
            try:
                yield Model(caller, SystemClock())
            finally:
                await transport.leave()


@pytest.fixture
async def restartable(tmp_path: Path) -> AsyncIterator[RestartableServer]:
    restartable = RestartableServer(tmp_path)
    await restartable.start()
    try:
        yield restartable
    finally:
        if restartable.server is not None:
            await restartable.kill()


async def to_the_end(model: Model, answer: Message) -> Message:
    while "next" in answer["structuredContent"]:
        answer = await model.call_next(answer)
    return answer


@BY_VERSIONS
async def test_after_a_server_is_killed_the_task_resumes_and_a_new_session_gets_the_result(
    version: str, restartable: RestartableServer
) -> None:
    async with restartable.host(version) as model:
        answer = await model.call("build_report", {"year": 2026, "seconds": 2.5 * WAIT})
        task_id = task_id_of(answer)
        await restartable.wait_for_line(f"{task_id} clean")
    await restartable.kill()
    await restartable.start()
    async with restartable.host(version) as model:
        # The new session does not know the id.
        (found,) = (await model.call("task_status"))["structuredContent"]["tasks"]
        assert found["task_id"] == task_id
        answer = await to_the_end(model, await model.call("task_wait", {"task_id": task_id}))
        assert answer["structuredContent"] == REPORT
        assert max(model.open_for) < WAIT + 5
    runs = Counter(restartable.lines())
    assert runs[f"{task_id} load"] == 1, "what was finished is not run again"


async def test_a_question_survives_a_server_that_is_killed_and_is_answered_in_a_new_session(
    restartable: RestartableServer,
) -> None:
    async with restartable.host("2025-06-18") as model:
        asked = await model.call("publish")
        assert next_call(asked)[0] == "task_answer"
    await restartable.kill()
    await restartable.start()
    async with restartable.host(MODERN) as model:
        again = await model.call("task_wait", {"task_id": task_id_of(asked)})
        assert model_text(again) == model_text(asked)
        assert model_text(await model.call_next(again, sure=True)) == "published"


async def test_a_caller_whose_server_is_killed_while_it_waits_loses_the_call_and_not_the_task(
    restartable: RestartableServer,
) -> None:
    async with restartable.host("2025-06-18") as model:
        answer = await model.call("build_report", {"year": 2026, "seconds": 2.5 * WAIT})
        waiting = model.begin(*next_call(answer))
        await restartable.wait_for_line(f"{task_id_of(answer)} clean")
        await restartable.kill()
        (lost,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(lost, Refused)
    await restartable.start()
    async with restartable.host("2025-06-18") as model:
        assert (await to_the_end(model, await model.call_next(answer)))["structuredContent"] == REPORT
