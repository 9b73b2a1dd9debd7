"""Poll intervals follow the time that a call has left by the measured durations."""

from typing import Any

import pytest

from raincheck.server.wait_policy import MIN_SAMPLES
from tests.support.server.caller_v2025 import V2025Caller, v2025_caller
from tests.support.server.caller_v2026 import Caller
from tests.support.server.timed_server import TimedServer
from tests.support.server.transports import Message

pytestmark = pytest.mark.anyio

QUICK, SLOW = 1.1, 250.0
QUICK_EDGE, SLOW_EDGE = 0.001 * 2 ** (41 / 4), 262.144
"""The same seconds, as a histogram returns them."""


def interval_of(task: Message) -> int:
    return task["pollIntervalMs" if "pollIntervalMs" in task else "pollInterval"]


async def make(caller: Caller | V2025Caller, timed_server: TimedServer) -> tuple[str, int]:
    """Start a call, and return its task id and its first poll interval."""
    answer = await (await timed_server.begin(caller, 1_000))
    task: dict[str, Any] = answer.get("task", answer)
    return task["taskId"], interval_of(task)


async def poll(caller: Caller | V2025Caller, task_id: str) -> int:
    task = await caller.get(task_id)
    assert task["status"] == "working"
    return interval_of(task)


@pytest.mark.parametrize("generation", ["v2025", "v2026"])
async def test_after_the_quick_calls_have_ended_the_poll_interval_follows_the_slow_ones(generation: str) -> None:
    timed_server = TimedServer(inline_for=0)
    async with timed_server.open() as later, v2025_caller(timed_server.server) as older:
        await timed_server.learn(later, QUICK, 8)
        await timed_server.learn(later, SLOW, 4)
        caller = older if generation == "v2025" else later
        task_id, first = await make(caller, timed_server)
        # Most likely it is one of the quick ones.
        assert first == 500
        timed_server.clock.advance(QUICK)
        assert await poll(caller, task_id) == 500
        timed_server.clock.advance(QUICK_EDGE - QUICK + 0.1)
        # It is not. What is left then is what is left of a slow one.
        assert await poll(caller, task_id) == round((SLOW_EDGE - QUICK_EDGE - 0.1) / 8 * 1_000)
        timed_server.clock.advance(100)
        assert await poll(caller, task_id) == round((SLOW_EDGE - QUICK_EDGE - 100.1) / 8 * 1_000)
        timed_server.clock.advance(300)
        # It takes longer than any that was seen: as long again, most likely.
        assert await poll(caller, task_id) == round((QUICK_EDGE + 400.1) / 16 * 1_000)


async def test_a_tool_that_is_always_quick_has_the_shortest_poll_interval() -> None:
    timed_server = TimedServer(inline_for=0)
    async with timed_server.open() as caller:
        await timed_server.learn(caller, QUICK)
        assert (await make(caller, timed_server))[1] == 500


async def test_a_tool_that_is_always_slow_has_a_long_poll_interval_from_the_start() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        await timed_server.learn(caller, SLOW, MIN_SAMPLES - 1)
        # Nothing is known yet.
        assert (await make(caller, timed_server))[1] == 500
        timed_server = TimedServer()
    async with timed_server.open() as caller:
        await timed_server.learn(caller, SLOW, MIN_SAMPLES)
        task_id, first = await make(caller, timed_server)
        assert first == round(SLOW_EDGE / 8 * 1_000)
        timed_server.clock.advance(50)
        assert await poll(caller, task_id) == round((SLOW_EDGE - 50) / 8 * 1_000)


async def test_until_there_are_measurements_the_poll_interval_follows_the_expected_duration() -> None:
    timed_server = TimedServer(expected=30)
    async with timed_server.open() as caller:
        task_id, first = await make(caller, timed_server)
        # As a histogram returns 30 seconds.
        assert first == round(32.768 / 8 * 1_000)
        timed_server.clock.advance(20)
        assert await poll(caller, task_id) == round(12.768 / 8 * 1_000)
        timed_server.clock.advance(100)
        assert await poll(caller, task_id) == round(120 / 16 * 1_000)
