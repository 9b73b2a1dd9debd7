"""Background tasks run to their end, even if nothing else refers to them."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from raincheck._async import RETRY_DELAY, repeat, retry_while_unavailable, shield, spawn_background
from raincheck.errors import StoreError, StoreFull, StoreUnavailable
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


async def test_a_shielded_future_outlives_its_cancelled_waiter_and_its_error_is_not_reported() -> None:
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    future: asyncio.Future[None] = loop.create_future()
    waiter = asyncio.ensure_future(shield(future))
    await settle()
    waiter.cancel()
    await settle()
    assert (waiter.cancelled(), future.done()) == (True, False)
    future.set_exception(LookupError())
    await settle()
    assert isinstance(future.exception(), LookupError)
    assert reported == []


async def test_a_shielded_future_returns_its_result_or_raises_its_error() -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str] = loop.create_future()
    failed: asyncio.Future[str] = loop.create_future()
    ended.set_result("result")
    failed.set_exception(LookupError())
    assert await shield(ended) == "result"
    with pytest.raises(LookupError):
        await shield(failed)


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


async def test_an_unavailable_store_is_tried_again_with_growing_waits() -> None:
    waits, failures = list[float](), list[StoreError]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def fail_three_times() -> str:
        if len(waits) < 3:
            raise StoreUnavailable("tasks.db", "it is locked")
        return "stored"

    assert await retry_while_unavailable(fail_three_times, on_failure=failures.append, sleep=sleep) == "stored"
    assert waits == sorted(set(waits))
    assert len(failures) == 3


async def test_the_last_allowed_try_raises_its_error() -> None:
    tries = 0

    async def fail() -> None:
        nonlocal tries
        tries += 1
        raise StoreUnavailable("tasks.db", "it is locked")

    async def sleep(_: float) -> None: ...

    with pytest.raises(StoreUnavailable):
        await retry_while_unavailable(fail, max_tries=3, sleep=sleep)
    assert tries == 3


async def test_other_errors_of_a_store_are_not_retried() -> None:
    async def fail() -> None:
        raise StoreFull("tasks.db", "the disk is full")

    with pytest.raises(StoreFull):
        await retry_while_unavailable(fail)
