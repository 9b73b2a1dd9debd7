"""What was measured is in the store: for others on the same file, and for the next who comes, each call once."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from raincheck import open_store
from raincheck.core.histogram import DurationHistogram
from raincheck.engine.worker.supervisor import DURATIONS_INTERVAL
from raincheck.errors import StoreUnavailable
from raincheck.server.wait_policy import MIN_SAMPLES
from tests.support.server.caller_v2026 import Caller
from tests.support.server.fallback.clock import WatchedClock
from tests.support.server.timed_server import QUICK, SLOW, Workshop
from tests.support.server.unavailable_store import Away

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


async def measured_in(file: Path, namespace: str = "shop") -> int:
    """How many calls the file knows of."""
    async with open_store(file) as store:
        known = await store.merge_durations(namespace, {})
    return known.get("take", DurationHistogram()).total


async def test_what_was_measured_before_a_restart_decides_after_it(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    for calls in (4, 3, 3):
        workshop = Workshop(file)
        async with workshop.open() as caller:
            assert await workshop.learn(caller, QUICK, calls) == ["task"] * calls
    workshop = Workshop(file)
    async with workshop.open() as caller:
        assert (await workshop.explained()).measured == MIN_SAMPLES
        assert (await workshop.run(caller, QUICK))["resultType"] == "complete"
    assert await measured_in(file) == MIN_SAMPLES + 1


async def test_a_tool_that_was_slow_before_a_restart_is_known_to_be_slow_after_it(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    workshop = Workshop(file, expected=0.1)
    async with workshop.open() as caller:
        await workshop.learn(caller, SLOW)
    workshop = Workshop(file, expected=0.1)
    async with workshop.open():
        assert await workshop.window() == 0


async def test_servers_on_one_file_learn_from_each_other(tmp_path: Path) -> None:
    clock = WatchedClock()
    here, there = Workshop(tmp_path / "tasks.db", clock), Workshop(tmp_path / "tasks.db", clock)
    async with here.open() as one, there.open() as other:
        for workshop, caller in ((here, one), (there, other)):
            # Each runs what it is called for itself.
            assert await workshop.learn(caller, QUICK, MIN_SAMPLES // 2) == ["task"] * (MIN_SAMPLES // 2)
        for _ in range(2):
            await go_by(clock, here, there)
        for workshop, caller in ((here, one), (there, other)):
            assert (await workshop.explained()).measured >= MIN_SAMPLES
            assert (await workshop.run(caller, QUICK))["resultType"] == "complete"
    assert await measured_in(tmp_path / "tasks.db") == MIN_SAMPLES + 2


async def go_by(clock: WatchedClock, *workshops: Workshop) -> None:
    """Let the time pass after which servers tell and hear what was measured, and let them do so."""
    await clock.asleep(DURATIONS_INTERVAL, len(workshops))
    clock.advance(DURATIONS_INTERVAL)
    await asyncio.sleep(0)
    await clock.asleep(DURATIONS_INTERVAL, len(workshops))


async def test_servers_of_other_names_on_one_file_do_not(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    here = Workshop(file)
    async with here.open() as caller:
        await here.learn(caller, QUICK)
    there = Workshop(file, None, {"namespace": "elsewhere"})
    async with there.open() as caller:
        assert (await there.explained()).measured == 0
        assert (await there.run(caller, QUICK))["resultType"] == "task"
    assert (await measured_in(file), await measured_in(file, "elsewhere")) == (MIN_SAMPLES, 1)


async def test_a_server_that_does_not_work_itself_knows_what_others_have_measured(tmp_path: Path) -> None:
    clock = WatchedClock()
    here = Workshop(tmp_path / "tasks.db", clock)
    idle = Workshop(tmp_path / "tasks.db", clock, {"works": False})
    async with here.open() as one, idle.open():
        await here.learn(one, QUICK)
        await go_by(clock, here, idle)
        await go_by(clock, here, idle)
        assert (await idle.explained()).measured == MIN_SAMPLES
        assert await idle.window() == await here.window() > 0


class Deaf(Away):
    """In front of a store that hears of no durations, or late, when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.is_deaf = False
        self.listens = asyncio.Event()
        self.listens.set()
        self.told = asyncio.Event()

    async def merge_durations(self, *args: Any, **kwargs: Any) -> Any:
        self.told.set()
        if self.is_deaf:
            self.missed.set()
            raise StoreUnavailable("a store", "it is out of reach for a while")
        await self.listens.wait()
        return await self._store.merge_durations(*args, **kwargs)


async def until_again(event: asyncio.Event, workshop: Workshop, caller: Caller) -> None:
    """Let time pass until something happens once more."""
    event.clear()
    for _ in range(500):
        workshop.clock.advance(DURATIONS_INTERVAL)
        await caller.request("server/discover")
        if event.is_set():
            return
    pytest.fail("it never did")


async def test_while_nothing_can_be_kept_of_what_is_measured_it_counts_here_and_is_kept_once_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    away, workshop = Deaf(monkeypatch), Workshop(tmp_path / "tasks.db")
    async with workshop.open() as caller:
        await caller.request("server/discover")
        away.is_deaf = True
        for number in range(1, MIN_SAMPLES + 1):
            assert (await workshop.run(caller, QUICK))["resultType"] == "task"
            # Somebody tries again now and then, in vain.
            await until_again(away.missed, workshop, caller)
            assert await workshop.measured(caller, number) == number
        assert (await workshop.run(caller, QUICK))["resultType"] == "complete"
        assert await measured_in(tmp_path / "tasks.db") == 0
        away.is_deaf = False
        for _ in range(3):
            await until_again(away.told, workshop, caller)
            assert await workshop.measured(caller, MIN_SAMPLES + 1) == MIN_SAMPLES + 1
    assert await measured_in(tmp_path / "tasks.db") == MIN_SAMPLES + 1


async def test_while_it_is_being_told_what_was_measured_counts_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    away, workshop = Deaf(monkeypatch), Workshop(tmp_path / "tasks.db")
    async with workshop.open() as caller:
        await workshop.learn(caller, QUICK, 4)
        await caller.request("server/discover")
        away.listens.clear()
        await until_again(away.told, workshop, caller)
        assert await workshop.measured(caller, 4) == 4
        await workshop.learn(caller, QUICK, 3)
        assert await workshop.measured(caller, 7) == 7
        away.listens.set()
    assert await measured_in(tmp_path / "tasks.db") == 7


async def test_a_server_that_can_not_tell_what_it_measured_stops_in_good_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away, workshop = Deaf(monkeypatch), Workshop(tmp_path / "tasks.db")
    async with workshop.open() as caller:
        await workshop.learn(caller, QUICK, 3)
        away.is_deaf = True
    assert [one.levelno for one in caplog.records if one.levelno > logging.WARNING] == []
    away.is_deaf = False
    again = Workshop(tmp_path / "tasks.db")
    async with again.open():
        assert (await again.explained()).measured == 0
