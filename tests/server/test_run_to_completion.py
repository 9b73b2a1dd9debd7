"""Seeing something through to its end, however whoever waits for it is cancelled."""

import asyncio

import anyio
import pytest

from raincheck._async import run_to_completion

pytestmark = pytest.mark.anyio


class Work:
    """Something that ends when it is let, and takes a few turns of the loop for it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.is_done = False

    async def do(self) -> str:
        self.begun.set()
        await self.gate.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        self.is_done = True
        return "done"


async def test_what_is_seen_through_gives_its_result() -> None:
    work = Work()
    work.gate.set()
    assert await run_to_completion(work.do()) == "done"


async def test_what_is_seen_through_raises_its_error() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_to_completion(fail())


async def test_who_is_cancelled_again_and_again_sees_it_through_and_is_cancelled_then() -> None:
    work = Work()
    seeing = asyncio.create_task(run_to_completion(work.do()))
    await work.begun.wait()
    for _ in range(3):
        seeing.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not seeing.done()
    work.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await seeing
    assert work.is_done


async def test_a_scope_of_anyio_that_is_cancelled_sees_it_through_and_is_left_then() -> None:
    work = Work()
    reached: list[str] = []

    async def see() -> None:
        with scope:
            reached.append(await run_to_completion(work.do()))
            await asyncio.sleep(0)
            reached.append("beyond")

    scope = anyio.CancelScope()
    seeing = asyncio.create_task(see())
    await work.begun.wait()
    scope.cancel()
    await asyncio.sleep(0)
    assert not seeing.done()
    work.gate.set()
    await seeing
    assert work.is_done
    assert scope.cancelled_caught
    assert reached == ["done"]


async def test_what_is_begun_in_a_scope_that_is_cancelled_already_is_seen_through_too() -> None:
    work = Work()
    work.gate.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await run_to_completion(work.do()) == "done"
    assert work.is_done
