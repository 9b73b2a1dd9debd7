"""Background tasks run to their end, even if nothing else refers to them."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from raincheck._async import RETRY_DELAY, repeat, spawn_background
from raincheck.errors import StoreUnavailable
from raincheck.testing import FakeClock

pytestmark = pytest.mark.anyio


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_background_task_is_not_garbage_collected_while_it_waits() -> None:
    waited_for: list[weakref.ref[asyncio.Future[None]]] = []
    ended = asyncio.Event()

    async def wait_alone() -> None:
        future = asyncio.get_running_loop().create_future()
        waited_for.append(weakref.ref(future))
        await future
        ended.set()

    spawn_background(wait_alone())
    await settle()
    gc.collect()
    future = waited_for[0]()
    assert future is not None
    future.set_result(None)
    await asyncio.wait_for(ended.wait(), 10)


@pytest.mark.parametrize("fails", [False, True])
async def test_an_ended_background_task_is_released_and_its_error_is_not_reported(
    caplog: pytest.LogCaptureFixture, *, fails: bool
) -> None:
    async def work() -> None:
        if fails:
            raise LookupError

    task: Any = weakref.ref(spawn_background(work()))
    await settle()
    gc.collect()
    assert task() is None
    assert caplog.records == []


async def test_a_loop_that_fails_logs_for_the_engine_and_continues(caplog: pytest.LogCaptureFixture) -> None:
    clock, rounds = FakeClock(), 0

    async def fail_once() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            asyncio.get_running_loop().call_soon(clock.advance, RETRY_DELAY)
            raise StoreUnavailable("tasks.db", "it is locked")

    await repeat("sweeper", fail_once, clock, stop_when=lambda: rounds == 2)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("raincheck.engine", "WARNING")
    assert record.getMessage().startswith("sweeper failed, will retry: ")
