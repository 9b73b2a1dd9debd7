"""Callers without tasks on the standard streams, on a Unix socket, and of a server that is killed in the middle."""

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
from tests.support.server.caller_v2025 import G1Caller, connected
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.fallback import example_server
from tests.support.server.fallback.hosts import BY_VERSIONS, FIVE, MODERN, Model, handle_of, next_call, told
from tests.support.server.transports import HttpWire, Message, over_stdio
from tests.support.server.transports_v2025 import G1HttpWire, G1StreamWire, g1_stdio
from tests.support.server.unix.transports import over_unix, program, short_folder, until_up

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

SERVER = Path(example_server.__file__)
WAIT = 1.0
REPORT: dict[str, Any] = {"year": 2026, "first": {"title": "one", "pages": [{"title": "two", "pages": []}]}}


async def go_through_it(model: Model) -> None:
    """Call, be told, wait, get the result; be asked, answer; find a lost task, and cancel it."""
    assert set(FIVE) < set(await model.tools())
    answer = await model.call("build_report", {"year": 2026, "seconds": 1.5 * WAIT})
    assert next_call(answer)[0] == "task_wait"
    while "next" in answer["structuredContent"]:
        answer = await model.go_on(answer)
    assert answer["structuredContent"] == REPORT

    asked = await model.call("publish")
    assert told(await model.go_on(asked, sure=True)) == "published"

    lost = handle_of(await model.call("draw", {"seconds": 600}))
    (found,) = (await model.call("task_status", {"tool": "draw"}))["structuredContent"]["tasks"]
    assert found["task_id"] == lost
    assert (await model.call("task_cancel", {"task_id": lost}))["structuredContent"]["status"] == "cancelled"
    # A call has a moment to get there, and to come back.
    assert max(model.open_for) < WAIT + 5


def arguments(store: Path) -> tuple[str, ...]:
    return "--store", str(store), "--wait", str(WAIT)


@BY_VERSIONS
async def test_all_of_it_on_the_standard_streams(version: str, tmp_path: Path) -> None:
    options = ("--transport", "stdio", *arguments(tmp_path / "tasks.db"))
    if version == MODERN:
        async with over_stdio(SERVER, *options) as wire:
            await go_through_it(Model(Caller(wire, capabilities={}), SystemClock()))
        return
    async with g1_stdio(SERVER, *options) as wire, connected(wire, version=version, capabilities={}) as caller:
        await go_through_it(Model(caller, SystemClock()))


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
async def test_all_of_it_on_a_unix_socket(version: str) -> None:
    with short_folder() as folder:
        options = ("--unix", folder / "plain.sock", *arguments(folder / "tasks.db"))
        async with program(SERVER, *options) as process:
            await until_up(folder / "plain.sock", process)
            async with over_unix(folder / "plain.sock") as wire:
                if version == MODERN:
                    await go_through_it(Model(Caller(wire, capabilities={}), SystemClock()))
                    return
                async with connected(G1StreamWire(wire), version=version, capabilities={}) as caller:
                    await go_through_it(Model(caller, SystemClock()))


class Site:
    """A file, a diary, and a server on one port that comes and goes."""

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
        """Until the server has written this."""
        async with asyncio.timeout(20):
            while line not in await asyncio.to_thread(self.lines):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def host(self, version: str) -> AsyncGenerator[Model]:
        """A host that nobody verifies, and that is known again all the same: it sends a header."""
        headers = {"authorization": "Bearer of mine"}
        url = f"http://127.0.0.1:{self.port}/mcp"
        async with httpx2.AsyncClient(timeout=10, trust_env=False) as client:
            if version == MODERN:
                yield Model(Caller(HttpWire(url, client), capabilities={}, headers=headers), SystemClock())
                return
            wire = G1HttpWire(url, client, headers)
            caller = G1Caller(wire, capabilities={}, version=version)
            await caller.greet()
            try:
                yield Model(caller, SystemClock())
            finally:
                await wire.leave()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    await site.start()
    try:
        yield site
    finally:
        if site.server is not None:
            await site.kill()


async def to_the_end(model: Model, answer: Message) -> Message:
    while "next" in answer["structuredContent"]:
        answer = await model.go_on(answer)
    return answer


@BY_VERSIONS
async def test_a_server_that_is_killed_in_the_middle_goes_on_and_a_new_session_gets_the_result(
    version: str, site: Site
) -> None:
    async with site.host(version) as model:
        answer = await model.call("build_report", {"year": 2026, "seconds": 2.5 * WAIT})
        task_id = handle_of(answer)
        await site.wait_for_line(f"{task_id} clean")
    await site.kill()
    await site.start()
    async with site.host(version) as model:
        # It knows nothing any more: not even the id.
        (found,) = (await model.call("task_status"))["structuredContent"]["tasks"]
        assert found["task_id"] == task_id
        answer = await to_the_end(model, await model.call("task_wait", {"task_id": task_id}))
        assert answer["structuredContent"] == REPORT
        assert max(model.open_for) < WAIT + 5
    runs = Counter(site.lines())
    assert runs[f"{task_id} load"] == 1, "what was finished is not run again"


async def test_a_question_survives_a_server_that_is_killed_and_is_answered_in_a_new_session(site: Site) -> None:
    async with site.host("2025-06-18") as model:
        asked = await model.call("publish")
        assert next_call(asked)[0] == "task_answer"
    await site.kill()
    await site.start()
    async with site.host(MODERN) as model:
        again = await model.call("task_wait", {"task_id": handle_of(asked)})
        assert told(again) == told(asked)
        assert told(await model.go_on(again, sure=True)) == "published"


async def test_a_caller_whose_server_is_killed_while_it_waits_loses_the_call_and_not_the_task(site: Site) -> None:
    async with site.host("2025-06-18") as model:
        answer = await model.call("build_report", {"year": 2026, "seconds": 2.5 * WAIT})
        waiting = model.begin(*next_call(answer))
        await site.wait_for_line(f"{handle_of(answer)} clean")
        await site.kill()
        (lost,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(lost, Refused)
    await site.start()
    async with site.host("2025-06-18") as model:
        assert (await to_the_end(model, await model.go_on(answer)))["structuredContent"] == REPORT
