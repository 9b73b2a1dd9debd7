"""What a server logs when it starts, without the whole id of an anonymous task."""

# pyright: reportUnusedFunction=false

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from raincheck import Owner, RetryPolicy, TaskContext
from raincheck.core.lifecycle import Phase
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated

pytestmark = pytest.mark.anyio


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    records = [record for record in caplog.records if record.name.startswith("raincheck")]
    return [record.getMessage() for record in records if record.levelno == level]


async def test_a_server_logs_where_its_tasks_are_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with ExampleServer(tmp_path / "tasks.db", namespace="corner").tasks.running():
        pass
    (line,) = [line for line in lines(caplog, logging.INFO) if "are stored in" in line]
    assert "'corner'" in line
    assert "tasks.db" in line


async def test_waiting_tasks_whose_tool_is_missing_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = ExampleServer(tmp_path / "tasks.db", works=False)
    for name in ("renamed", "newer", "kept"):
        add_gated(before, name)
    async with before.tasks.running() as engine:
        for name in ("renamed", "renamed", "newer", "kept"):
            await engine.submit(name)
    assert lines(caplog, logging.WARNING) == []
    after = ExampleServer(tmp_path / "tasks.db", works=False)
    add_gated(after, "newer", version="2")
    add_gated(after, "kept")
    async with after.tasks.running():
        pass
    logged = sorted(lines(caplog, logging.WARNING))
    assert len(logged) == 2
    assert logged[0].startswith("at least 1 waiting tasks need tool 'newer' in version '1'")
    assert logged[1].startswith("at least 2 waiting tasks need tool 'renamed' in version '1'")
    caplog.clear()
    last = ExampleServer(tmp_path / "tasks.db", works=False)
    add_gated(last, "newer", version="2", continues=("1",))
    add_gated(last, "kept")
    add_gated(last, "renamed")
    async with last.tasks.running():
        pass
    assert lines(caplog, logging.WARNING) == []


async def test_an_enable_without_effect_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = ExampleServer()
    server.mcp.add_tool(_add, name="add")
    for pattern in ("add", "ad*", "ad", "sub*"):
        server.tasks.enable(pattern)
    async with server.tasks.running():
        pass
    logged = lines(caplog, logging.WARNING)
    assert ["'ad'" in logged[0], "'sub*'" in logged[1], len(logged)] == [True, True, 2]


def _add(a: int, b: int) -> int:
    return a + b


async def test_no_line_shows_the_whole_id_of_an_anonymous_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has that has the right to it."""
    server = ExampleServer(tmp_path / "tasks.db", settings=replace(QUICK, lease=0.3))
    began = asyncio.Event()

    @server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash() -> None:
        raise OSError("no")

    @server.tasks.tool(retry=RetryPolicy(attempts=1), attempt_timeout=0.05)
    async def slow() -> None:
        await asyncio.Event().wait()

    @server.tasks.tool(timeout=0.05)
    async def late() -> None:
        await asyncio.Event().wait()

    @server.tasks.tool
    async def handed_back(task: TaskContext) -> None:
        began.set()
        await task.progress(1, 2)
        await asyncio.Event().wait()

    caplog.set_level(logging.DEBUG)
    nobody = Owner.anonymous()
    async with server.tasks.running() as engine:
        ids = {name: (await engine.submit(name, owner=nobody)).id for name in ("crash", "slow", "late", "handed_back")}
        for name in ("crash", "slow", "late"):
            assert (await engine.wait(ids[name], owner=nobody)).task.phase is Phase.FAILED
        await began.wait()
    logged = [record for record in caplog.records if record.name.startswith("raincheck")]
    assert any("crash" in record.getMessage() for record in logged)
    for record in logged:
        for task_id in ids.values():
            assert task_id not in record.getMessage(), record
            assert task_id not in str(record.__dict__), record
