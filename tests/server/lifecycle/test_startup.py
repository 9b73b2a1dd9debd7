"""What a server says when it starts, and that its log lines give away no right to an anonymous task."""

# pyright: reportUnusedFunction=false

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from raincheck import Owner, RetryPolicy, TaskContext
from raincheck.core.lifecycle import Phase
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import add_gated

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    ours = [record for record in caplog.records if record.name.startswith("raincheck")]
    return [record.getMessage() for record in ours if record.levelno == level]


async def test_a_server_says_where_its_tasks_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Shop(tmp_path / "tasks.db", namespace="corner").tasks.running():
        pass
    (line,) = [line for line in lines(caplog, logging.INFO) if "are kept in" in line]
    assert "'corner'" in line
    assert "tasks.db" in line


async def test_waiting_tasks_whose_tool_is_not_here_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = Shop(tmp_path / "tasks.db", works=False)
    for name in ("renamed", "newer", "kept"):
        add_gated(before, name)
    async with before.tasks.running() as engine:
        for name in ("renamed", "renamed", "newer", "kept"):
            await engine.submit(name)
    assert lines(caplog, logging.WARNING) == []
    after = Shop(tmp_path / "tasks.db", works=False)
    add_gated(after, "newer", version="2")
    add_gated(after, "kept")
    async with after.tasks.running():
        pass
    told = sorted(lines(caplog, logging.WARNING))
    assert len(told) == 2
    assert told[0].startswith("at least 1 waiting tasks need tool 'newer' in version '1'")
    assert told[1].startswith("at least 2 waiting tasks need tool 'renamed' in version '1'")
    caplog.clear()
    last = Shop(tmp_path / "tasks.db", works=False)
    add_gated(last, "newer", version="2", continues=("1",))
    add_gated(last, "kept")
    add_gated(last, "renamed")
    async with last.tasks.running():
        pass
    assert lines(caplog, logging.WARNING) == []


async def test_what_enables_nothing_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    shop.mcp.add_tool(_add, name="add")
    for pattern in ("add", "ad*", "ad", "sub*"):
        shop.tasks.enable(pattern)
    async with shop.tasks.running():
        pass
    told = lines(caplog, logging.WARNING)
    assert ["'ad'" in told[0], "'sub*'" in told[1], len(told)] == [True, True, 2]


def _add(a: int, b: int) -> int:
    return a + b


async def test_no_line_shows_the_whole_id_of_an_anonymous_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has that has the right to it."""
    shop = Shop(tmp_path / "tasks.db", settings=replace(QUICK, lease=0.3))
    began = asyncio.Event()

    @shop.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash() -> None:
        raise OSError("no")

    @shop.tasks.tool(retry=RetryPolicy(attempts=1), attempt_timeout=0.05)
    async def slow() -> None:
        await asyncio.Event().wait()

    @shop.tasks.tool(timeout=0.05)
    async def late() -> None:
        await asyncio.Event().wait()

    @shop.tasks.tool
    async def handed_back(task: TaskContext) -> None:
        began.set()
        await task.progress(1, 2)
        await asyncio.Event().wait()

    caplog.set_level(logging.DEBUG)
    nobody = Owner.anonymous()
    async with shop.tasks.running() as engine:
        ids = {name: (await engine.submit(name, owner=nobody)).id for name in ("crash", "slow", "late", "handed_back")}
        for name in ("crash", "slow", "late"):
            assert (await engine.wait(ids[name], owner=nobody)).task.phase is Phase.FAILED
        await began.wait()
    told = [record for record in caplog.records if record.name.startswith("raincheck")]
    assert any("crash" in record.getMessage() for record in told)
    for record in told:
        for task_id in ids.values():
            assert task_id not in record.getMessage(), record
            assert task_id not in str(record.__dict__), record
