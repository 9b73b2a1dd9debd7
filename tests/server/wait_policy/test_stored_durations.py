"""Measured durations are stored once per call, for other servers on the file and for the next one."""

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
from tests.support.server.timed_server import QUICK, SLOW, TimedServer
from tests.support.server.unavailable_store import UnavailableStore
from tests.support.watched_clock import WatchedClock

pytestmark = pytest.mark.anyio


async def measured_in(file: Path, namespace: str = "shop") -> int:
    """How many calls the file knows of."""
    async with open_store(file) as store:
        known = await store.merge_durations(namespace, {})
    return known.get("take", DurationHistogram()).total


async def test_measurements_from_before_a_restart_decide_after_it(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    for calls in (4, 3, 3):
        timed_server = TimedServer(file)
        async with timed_server.open() as caller:
            assert await timed_server.learn(caller, QUICK, calls) == ["task"] * calls
    timed_server = TimedServer(file)
    async with timed_server.open() as caller:
        assert (await timed_server.explained()).measured == MIN_SAMPLES
        assert (await timed_server.run(caller, QUICK))["resultType"] == "complete"
    assert await measured_in(file) == MIN_SAMPLES + 1


async def test_a_tool_that_was_slow_before_a_restart_is_known_to_be_slow_after_it(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    timed_server = TimedServer(file, expected=0.1)
    async with timed_server.open() as caller:
        await timed_server.learn(caller, SLOW)
    timed_server = TimedServer(file, expected=0.1)
    async with timed_server.open():
        assert await timed_server.window() == 0


async def test_servers_on_one_file_share_measurements(tmp_path: Path) -> None:
    clock = WatchedClock()
    here, there = TimedServer(tmp_path / "tasks.db", clock), TimedServer(tmp_path / "tasks.db", clock)
    async with here.open() as one, there.open() as other:
        for timed_server, caller in ((here, one), (there, other)):
            # Each runs what it is called for itself.
            assert await timed_server.learn(caller, QUICK, MIN_SAMPLES // 2) == ["task"] * (MIN_SAMPLES // 2)
        for _ in range(2):
            await go_by(clock, here, there)
        for timed_server, caller in ((here, one), (there, other)):
            assert (await timed_server.explained()).measured >= MIN_SAMPLES
            assert (await timed_server.run(caller, QUICK))["resultType"] == "complete"
    assert await measured_in(tmp_path / "tasks.db") == MIN_SAMPLES + 2


async def go_by(clock: WatchedClock, *workshops: TimedServer) -> None:
    """Advance the time until servers exchange measurements with the store, and let them do so."""
    await clock.asleep(DURATIONS_INTERVAL, len(workshops))
    clock.advance(DURATIONS_INTERVAL)
    await asyncio.sleep(0)
    await clock.asleep(DURATIONS_INTERVAL, len(workshops))


async def test_servers_of_different_names_on_one_file_do_not_share_measurements(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    here = TimedServer(file)
    async with here.open() as caller:
        await here.learn(caller, QUICK)
    there = TimedServer(file, None, {"namespace": "elsewhere"})
    async with there.open() as caller:
        assert (await there.explained()).measured == 0
        assert (await there.run(caller, QUICK))["resultType"] == "task"
    assert (await measured_in(file), await measured_in(file, "elsewhere")) == (MIN_SAMPLES, 1)


async def test_a_server_without_a_worker_uses_the_measurements_of_others(tmp_path: Path) -> None:
    clock = WatchedClock()
    here = TimedServer(tmp_path / "tasks.db", clock)
    idle = TimedServer(tmp_path / "tasks.db", clock, {"works": False})
    async with here.open() as one, idle.open():
        await here.learn(one, QUICK)
        await go_by(clock, here, idle)
        await go_by(clock, here, idle)
        assert (await idle.explained()).measured == MIN_SAMPLES
        assert await idle.window() == await here.window() > 0


class Deaf(UnavailableStore):
    """Wraps a store, and refuses or delays durations when a test wants it."""

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


async def until_again(event: asyncio.Event, timed_server: TimedServer, caller: Caller) -> None:
    """Let time pass until something happens once more."""
    event.clear()
    while not event.is_set():
        timed_server.clock.advance(DURATIONS_INTERVAL)
        await caller.request("server/discover")


async def test_measurements_that_can_not_be_stored_count_locally_and_are_stored_once_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    away, timed_server = Deaf(monkeypatch), TimedServer(tmp_path / "tasks.db")
    async with timed_server.open() as caller:
        await caller.request("server/discover")
        away.is_deaf = True
        for number in range(1, MIN_SAMPLES + 1):
            assert (await timed_server.run(caller, QUICK))["resultType"] == "task"
            # It is retried now and then, in vain.
            await until_again(away.missed, timed_server, caller)
            assert await timed_server.measured(caller, number) == number
        assert (await timed_server.run(caller, QUICK))["resultType"] == "complete"
        assert await measured_in(tmp_path / "tasks.db") == 0
        away.is_deaf = False
        for _ in range(3):
            await until_again(away.told, timed_server, caller)
            assert await timed_server.measured(caller, MIN_SAMPLES + 1) == MIN_SAMPLES + 1
    assert await measured_in(tmp_path / "tasks.db") == MIN_SAMPLES + 1


async def test_measurements_in_transit_to_the_store_count_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    away, timed_server = Deaf(monkeypatch), TimedServer(tmp_path / "tasks.db")
    async with timed_server.open() as caller:
        await timed_server.learn(caller, QUICK, 4)
        await caller.request("server/discover")
        away.listens.clear()
        await until_again(away.told, timed_server, caller)
        assert await timed_server.measured(caller, 4) == 4
        await timed_server.learn(caller, QUICK, 3)
        assert await timed_server.measured(caller, 7) == 7
        away.listens.set()
    assert await measured_in(tmp_path / "tasks.db") == 7


async def test_a_server_that_can_not_store_its_measurements_stops_cleanly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away, timed_server = Deaf(monkeypatch), TimedServer(tmp_path / "tasks.db")
    async with timed_server.open() as caller:
        await timed_server.learn(caller, QUICK, 3)
        away.is_deaf = True
    assert [one.levelno for one in caplog.records if one.levelno > logging.WARNING] == []
    away.is_deaf = False
    again = TimedServer(tmp_path / "tasks.db")
    async with again.open():
        assert (await again.explained()).measured == 0
