"""`run_to_completion` completes its work, even if its caller is cancelled."""

import asyncio

import anyio
import pytest

from raincheck._async import run_to_completion

pytestmark = pytest.mark.anyio


class Work:
    """Something that ends when it is let, and takes a few turns of the loop for it."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.is_done = False

    async def do(self) -> str:
        self.started.set()
        await self.gate.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        self.is_done = True
        return "done"


async def test_run_to_completion_returns_the_result() -> None:
    work = Work()
    work.gate.set()
    assert await run_to_completion(work.do()) == "done"


async def test_run_to_completion_raises_the_error() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_to_completion(fail())


async def test_a_task_cancelled_repeatedly_completes_its_work_and_is_cancelled_afterwards() -> None:
    work = Work()
    seeing = asyncio.create_task(run_to_completion(work.do()))
    await work.started.wait()
    for _ in range(3):
        seeing.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not seeing.done()
    work.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await seeing
    assert work.is_done


async def test_a_cancelled_anyio_scope_completes_the_work_and_is_left_afterwards() -> None:
    work = Work()
    reached: list[str] = []

    async def see() -> None:
        with scope:
            reached.append(await run_to_completion(work.do()))
            await asyncio.sleep(0)
            reached.append("beyond")

    scope = anyio.CancelScope()
    seeing = asyncio.create_task(see())
    await work.started.wait()
    scope.cancel()
    await asyncio.sleep(0)
    assert not seeing.done()
    work.gate.set()
    await seeing
    assert work.is_done
    assert scope.cancelled_caught
    assert reached == ["done"]


async def test_work_that_starts_in_a_cancelled_scope_is_completed() -> None:
    work = Work()
    work.gate.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await run_to_completion(work.do()) == "done"
    assert work.is_done
