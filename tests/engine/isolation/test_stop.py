"""Bodies in processes of their own: how they stop, and that nothing is left of them."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from raincheck.engine.execution.bodies import BodyResult
from raincheck.engine.isolation.child import StopSignal
from raincheck.engine.isolation.process_body import ProcessDied
from tests.support.engine import isolated_bodies as bodies
from tests.support.engine.isolation import LONG, Isolation, Witness, ending_of, error_of, is_there, isolating

pytestmark = pytest.mark.anyio


@pytest.fixture
async def isolation() -> AsyncIterator[Isolation]:
    async with isolating() as isolation:
        yield isolation


@pytest.fixture
async def witness(tmp_path: Path) -> AsyncIterator[Witness]:
    async with Witness(tmp_path / "w").listening() as witness:
        yield witness


async def test_a_function_that_never_ends_is_stopped_by_being_told(isolation: Isolation) -> None:
    process = isolation.start(bodies.spins)
    pid = await isolation.hear()
    assert is_there(pid)
    process.request_stop()
    process.request_stop()
    assert isinstance(error_of(await ending_of(process)), asyncio.CancelledError)
    assert not is_there(pid)
    process.request_stop()


async def test_a_body_that_does_not_listen_is_killed_after_its_grace_time(isolation: Isolation) -> None:
    process = isolation.start(bodies.does_not_listen, grace=0.05)
    pid = await isolation.hear()
    process.request_stop()
    assert isinstance(error_of(await ending_of(process)), asyncio.CancelledError)
    assert not is_there(pid)


async def test_a_coroutine_that_never_waits_is_killed_after_its_grace_time(
    isolation: Isolation, witness: Witness
) -> None:
    process = isolation.start(bodies.spins_in_the_loop, grace=0.05, address=witness.address)
    await witness.came()
    process.request_stop()
    assert isinstance(error_of(await ending_of(process)), asyncio.CancelledError)
    await witness.went()


@pytest.mark.parametrize("body", [bodies.tidies_up, bodies.tidies_up_async])
async def test_a_body_that_is_stopped_tidies_up(isolation: Isolation, tmp_path: Path, body: Any) -> None:
    process = isolation.start(body, path=str(tmp_path / "tidy"))
    await isolation.hear()
    process.request_stop()
    assert isinstance(error_of(await ending_of(process)), asyncio.CancelledError)
    assert (tmp_path / "tidy").read_text() == "cancelled: True"


async def test_a_body_that_waits_at_the_desk_is_stopped(isolation: Isolation) -> None:
    process = isolation.start(bodies.sleeps)
    await isolation.hear()
    process.request_stop()
    assert isinstance(error_of(await ending_of(process)), asyncio.CancelledError)
    assert await isolation.hear() == "given up"


async def test_a_body_that_returns_when_it_is_told_to_stop_has_returned(isolation: Isolation) -> None:
    process = isolation.start(bodies.returns_all_the_same)
    await isolation.hear()
    process.request_stop()
    assert await ending_of(process) == BodyResult("nearly done")


async def test_a_coroutine_that_never_waits_can_look_whether_to_stop(isolation: Isolation, witness: Witness) -> None:
    process = isolation.start(bodies.spins_until_cancelled, address=witness.address)
    await witness.came()
    process.request_stop()
    assert await ending_of(process) == BodyResult("saw it")


async def test_a_body_that_is_told_to_stop_before_its_process_is_there_does_not_run(isolation: Isolation) -> None:
    process = isolation.start(bodies.spins)
    process.request_stop()
    assert isinstance(error_of(await ending_of(process)), asyncio.CancelledError)
    assert not isolation.desk.calls


async def test_a_body_that_is_told_to_stop_while_its_process_starts_does_not_run(isolation: Isolation) -> None:
    process = isolation.start(bodies.spins)
    # Until its thread is there, which starts the process.
    while not any(thread.name == "raincheck-process" for thread in threading.enumerate()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    process.request_stop()
    assert isinstance(error_of(await ending_of(process)), asyncio.CancelledError)
    assert not isolation.desk.calls


def test_a_signal_that_comes_before_the_body_begins_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(signal, "pthread_sigmask", handlers.get)
    stop, told = StopSignal(), list[str]()
    handlers[signal.SIGTERM]()
    with stop.on_stop(lambda: told.append("stop")):
        assert told == ["stop"]
    assert stop.is_requested


async def test_a_body_whose_attempt_is_stopped_already_is_not_started(isolation: Isolation) -> None:
    process = isolation.start(bodies.spins, is_stopped=True)
    assert isinstance(error_of(await ending_of(process)), asyncio.CancelledError)


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_what_a_body_started_is_stopped_with_it(
    isolation: Isolation, witness: Witness, is_stubborn: bool
) -> None:
    process = isolation.start(bodies.starts_another, address=witness.address, is_stubborn=is_stubborn, stays=True)
    await witness.came()
    process.request_stop()
    assert isinstance(error_of(await ending_of(process)), asyncio.CancelledError)
    await witness.went()


async def test_what_a_body_started_does_not_outlive_its_end(isolation: Isolation, witness: Witness) -> None:
    process = isolation.start(bodies.starts_another, address=witness.address, is_stubborn=False, stays=False)
    assert await ending_of(process) == BodyResult("left it behind")
    await witness.came()
    await witness.went()


async def test_a_process_that_somebody_else_kills_says_so(isolation: Isolation) -> None:
    process = isolation.start(bodies.spins)
    os.kill(int(await isolation.hear()), signal.SIGKILL)
    error = error_of(await ending_of(process))
    assert isinstance(error, ProcessDied)
    assert str(error) == "its process ended by signal SIGKILL"


async def test_a_process_that_can_t_be_started_says_why(isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    error = await isolation.raised_by(bodies.plain, numbers=[])
    assert isinstance(error, ProcessDied)
    assert "can't be started: " in str(error)
    assert "/nowhere/python" in str(error)


async def test_many_bodies_leave_no_descriptors_no_jobs_and_no_threads(isolation: Isolation) -> None:
    await isolation.returned_by(bodies.plain, numbers=[])
    before = what_is_open()
    endings = [isolation.returned_by(bodies.plain, numbers=[number]) for number in range(4)]
    assert [one["sum"] for one in await asyncio.gather(*endings)] == [0, 1, 2, 3]
    assert what_is_open() == before


def what_is_open() -> tuple[int, int, int]:
    for thread in threading.enumerate():
        if thread.name == "raincheck-process":
            # It has said that all is done, and does no more than return.
            thread.join(LONG)
    return len(list(Path("/dev/fd").iterdir())), len(asyncio.all_tasks()), threading.active_count()
