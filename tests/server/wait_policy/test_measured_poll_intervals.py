"""How often to poll follows what was measured: what is left of a call, given how long it has taken already."""

from typing import Any

import pytest

from raincheck.server.wait_policy import MIN_SAMPLES
from tests.support.server.caller_v2025 import G1Caller, calling
from tests.support.server.caller_v2026 import Caller
from tests.support.server.timed_server import Workshop
from tests.support.server.transports import Message

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

QUICK, SLOW = 1.1, 250.0
QUICK_EDGE, SLOW_EDGE = 0.001 * 2 ** (41 / 4), 262.144
"""The same as a sketch tells them."""


def interval_of(task: Message) -> int:
    return task["pollIntervalMs" if "pollIntervalMs" in task else "pollInterval"]


async def make(caller: Caller | G1Caller, workshop: Workshop) -> tuple[str, int]:
    """A task of a call that goes on, and what its caller is told of when to ask for it."""
    answer = await (await workshop.begin(caller, 1_000))
    task: dict[str, Any] = answer.get("task", answer)
    return task["taskId"], interval_of(task)


async def poll(caller: Caller | G1Caller, task_id: str) -> int:
    task = await caller.get(task_id)
    assert task["status"] == "working"
    return interval_of(task)


@pytest.mark.parametrize("generation", ["g1", "g2"])
async def test_after_the_quick_ones_have_ended_the_pace_of_a_call_follows_the_slow_ones(generation: str) -> None:
    workshop = Workshop(inline_for=0)
    async with workshop.open() as later, calling(workshop.shop) as older:
        await workshop.learn(later, QUICK, 8)
        await workshop.learn(later, SLOW, 4)
        caller = older if generation == "g1" else later
        task_id, first = await make(caller, workshop)
        # Most likely it is one of the quick ones.
        assert first == 500
        workshop.clock.advance(QUICK)
        assert await poll(caller, task_id) == 500
        workshop.clock.advance(QUICK_EDGE - QUICK + 0.1)
        # It is not. What is left then is what is left of a slow one.
        assert await poll(caller, task_id) == round((SLOW_EDGE - QUICK_EDGE - 0.1) / 8 * 1_000)
        workshop.clock.advance(100)
        assert await poll(caller, task_id) == round((SLOW_EDGE - QUICK_EDGE - 100.1) / 8 * 1_000)
        workshop.clock.advance(300)
        # It takes longer than any that was seen: as long again, most likely.
        assert await poll(caller, task_id) == round((QUICK_EDGE + 400.1) / 16 * 1_000)


async def test_a_tool_that_is_always_quick_is_asked_for_as_often_as_may_be() -> None:
    workshop = Workshop(inline_for=0)
    async with workshop.open() as caller:
        await workshop.learn(caller, QUICK)
        assert (await make(caller, workshop))[1] == 500


async def test_a_tool_that_is_always_slow_is_asked_for_rarely_from_the_beginning_on() -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        await workshop.learn(caller, SLOW, MIN_SAMPLES - 1)
        # Nothing is known yet.
        assert (await make(caller, workshop))[1] == 500
        workshop = Workshop()
    async with workshop.open() as caller:
        await workshop.learn(caller, SLOW, MIN_SAMPLES)
        task_id, first = await make(caller, workshop)
        assert first == round(SLOW_EDGE / 8 * 1_000)
        workshop.clock.advance(50)
        assert await poll(caller, task_id) == round((SLOW_EDGE - 50) / 8 * 1_000)


async def test_until_then_the_pace_follows_what_the_author_expects() -> None:
    workshop = Workshop(expected=30)
    async with workshop.open() as caller:
        task_id, first = await make(caller, workshop)
        # As a sketch tells 30 seconds.
        assert first == round(32.768 / 8 * 1_000)
        workshop.clock.advance(20)
        assert await poll(caller, task_id) == round(12.768 / 8 * 1_000)
        workshop.clock.advance(100)
        assert await poll(caller, task_id) == round(120 / 16 * 1_000)
