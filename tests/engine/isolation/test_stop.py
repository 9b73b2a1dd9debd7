"""Isolated bodies can be stopped and leave nothing behind."""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from raincheck.engine.execution.bodies import BodyResult
from raincheck.engine.isolation.child import StopSignal
from raincheck.engine.isolation.process_body import ProcessDied, ProcessGroup
from tests.support.engine import isolated_bodies as bodies
from tests.support.engine.isolation import (
    TIMEOUT,
    Isolation,
    ProcessWitness,
    body_error,
    body_outcome,
    isolating,
    process_exists,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def isolation() -> AsyncIterator[Isolation]:
    async with isolating() as isolation:
        yield isolation


@pytest.fixture
async def witness(tmp_path: Path) -> AsyncIterator[ProcessWitness]:
    async with ProcessWitness(tmp_path / "w").listening() as witness:
        yield witness


async def test_an_endless_function_is_stopped_by_the_signal(isolation: Isolation) -> None:
    process = isolation.start(bodies.spins)
    pid = await isolation.next_status()
    assert process_exists(pid)
    process.request_stop()
    process.request_stop()
    assert isinstance(body_error(await body_outcome(process)), asyncio.CancelledError)
    assert not process_exists(pid)
    process.request_stop()


async def test_a_body_that_ignores_the_signal_is_killed_after_its_grace_period(isolation: Isolation) -> None:
    process = isolation.start(bodies.ignores_sigterm, grace=0.05)
    pid = await isolation.next_status()
    process.request_stop()
    assert isinstance(body_error(await body_outcome(process)), asyncio.CancelledError)
    assert not process_exists(pid)


async def test_a_coroutine_that_never_awaits_is_killed_after_its_grace_period(
    isolation: Isolation, witness: ProcessWitness
) -> None:
    process = isolation.start(bodies.spins_in_the_loop, grace=0.05, address=witness.address)
    await witness.wait_connected()
    process.request_stop()
    assert isinstance(body_error(await body_outcome(process)), asyncio.CancelledError)
    await witness.wait_disconnected()


@pytest.mark.parametrize("body", [bodies.cleans_up, bodies.cleans_up_async])
async def test_a_body_that_is_stopped_can_clean_up(isolation: Isolation, tmp_path: Path, body: Any) -> None:
    process = isolation.start(body, path=str(tmp_path / "tidy"))
    await isolation.next_status()
    process.request_stop()
    assert isinstance(body_error(await body_outcome(process)), asyncio.CancelledError)
    assert (tmp_path / "tidy").read_text() == "cancelled: True"


async def test_a_body_that_waits_for_a_call_is_stopped(isolation: Isolation) -> None:
    process = isolation.start(bodies.sleeps)
    await isolation.next_status()
    process.request_stop()
    assert isinstance(body_error(await body_outcome(process)), asyncio.CancelledError)
    assert await isolation.next_status() == "cancelled"


async def test_a_body_that_returns_when_it_is_asked_to_stop_has_returned(isolation: Isolation) -> None:
    process = isolation.start(bodies.ignores_the_stop)
    await isolation.next_status()
    process.request_stop()
    assert await body_outcome(process) == BodyResult("nearly done")


async def test_a_coroutine_that_never_awaits_can_check_whether_to_stop(
    isolation: Isolation, witness: ProcessWitness
) -> None:
    process = isolation.start(bodies.spins_until_cancelled, address=witness.address)
    await witness.wait_connected()
    process.request_stop()
    assert await body_outcome(process) == BodyResult("saw it")


async def test_a_body_that_is_stopped_before_its_process_exists_does_not_run(isolation: Isolation) -> None:
    process = isolation.start(bodies.spins)
    process.request_stop()
    assert isinstance(body_error(await body_outcome(process)), asyncio.CancelledError)
    assert not isolation.api.calls


@pytest.mark.cold
async def test_a_body_that_is_stopped_while_its_process_starts_does_not_run(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A forked process would be ready at once; a new one has its interpreter to start before it can run the body.
    starting, stop_requested, start = threading.Event(), threading.Event(), vars(ProcessGroup)["_start"]

    def start_late(group: ProcessGroup, connection: socket.socket) -> object:
        starting.set()
        assert stop_requested.wait(TIMEOUT)
        return start(group, connection)

    monkeypatch.setattr(ProcessGroup, "_start", start_late)
    process = isolation.start(bodies.spins)
    assert await asyncio.to_thread(starting.wait, TIMEOUT)
    process.request_stop()
    stop_requested.set()
    assert isinstance(body_error(await body_outcome(process)), asyncio.CancelledError)
    assert not isolation.api.calls


def test_a_signal_before_the_start_of_the_body_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(signal, "pthread_sigmask", handlers.get)
    stop, stops = StopSignal(), list[str]()
    handlers[signal.SIGTERM]()
    with stop.on_stop(lambda: stops.append("stop")):
        assert stops == ["stop"]
    assert stop.is_requested


async def test_a_body_whose_attempt_is_stopped_already_is_not_started(isolation: Isolation) -> None:
    process = isolation.start(bodies.spins, is_stopped=True)
    assert isinstance(body_error(await body_outcome(process)), asyncio.CancelledError)


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_processes_started_by_a_body_are_stopped_with_it(
    isolation: Isolation, witness: ProcessWitness, is_stubborn: bool
) -> None:
    process = isolation.start(bodies.starts_a_process, address=witness.address, is_stubborn=is_stubborn, stays=True)
    await witness.wait_connected()
    process.request_stop()
    assert isinstance(body_error(await body_outcome(process)), asyncio.CancelledError)
    await witness.wait_disconnected()


async def test_processes_started_by_a_body_do_not_outlive_it(isolation: Isolation, witness: ProcessWitness) -> None:
    process = isolation.start(bodies.starts_a_process, address=witness.address, is_stubborn=False, stays=False)
    assert await body_outcome(process) == BodyResult("left it behind")
    await witness.wait_connected()
    await witness.wait_disconnected()


async def test_a_process_killed_from_outside_is_reported(isolation: Isolation) -> None:
    process = isolation.start(bodies.spins)
    os.kill(int(await isolation.next_status()), signal.SIGKILL)
    error = body_error(await body_outcome(process))
    assert isinstance(error, ProcessDied)
    assert str(error) == "its process ended by signal SIGKILL"


async def test_a_process_that_can_t_be_started_is_reported_with_the_reason(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    error = await isolation.raised_by(bodies.plain, numbers=[])
    assert isinstance(error, ProcessDied)
    assert "can't be started: " in str(error)
    assert "/nowhere/python" in str(error)


async def test_many_bodies_leave_no_descriptors_asyncio_tasks_or_threads(isolation: Isolation) -> None:
    await isolation.returned_by(bodies.plain, numbers=[])
    before = what_is_open()
    endings = [isolation.returned_by(bodies.plain, numbers=[number]) for number in range(4)]
    assert [one["sum"] for one in await asyncio.gather(*endings)] == [0, 1, 2, 3]
    assert what_is_open() == before


def what_is_open() -> tuple[int, int, int]:
    for thread in threading.enumerate():
        if thread.name == "raincheck-process":
            # It has said that all is done, and does no more than return.
            thread.join(TIMEOUT)
    return len(list(Path("/dev/fd").iterdir())), len(asyncio.all_tasks()), threading.active_count()
