"""Measured durations decide whether a call returns its result or its task."""

import asyncio
from typing import Any

import pytest

from raincheck.engine.worker.supervisor import DURATIONS_INTERVAL
from raincheck.server.wait_policy import MIN_SAMPLES, SHORT_WAIT, SLACK
from tests.support.server.caller_v2025 import v2025_caller
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.timed_server import QUICK, SLOW, TimedServer
from tests.support.server.tools import NO_TASKS, text_of

pytestmark = pytest.mark.anyio


async def test_a_tool_that_was_quick_ten_times_is_answered_with_its_result_from_then_on() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        assert await timed_server.learn(caller, QUICK) == ["task"] * MIN_SAMPLES
        assert await timed_server.learn(caller, QUICK) == ["complete"] * MIN_SAMPLES
        result = await timed_server.run(caller, QUICK)
        assert text_of(result) == "well"
        assert "taskId" not in result


async def test_a_call_that_ends_at_once_is_quick() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        assert await timed_server.learn(caller, 0, MIN_SAMPLES + 1) == [*["task"] * MIN_SAMPLES, "complete"]


async def test_a_tool_that_was_slow_ten_times_is_answered_with_its_task_as_before() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        assert await timed_server.learn(caller, SLOW, 2 * MIN_SAMPLES) == ["task"] * 2 * MIN_SAMPLES
        assert await timed_server.window() == 0


async def test_a_quick_tool_that_becomes_slow_returns_tasks_at_once_when_its_quick_calls_have_decayed() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        await timed_server.learn(caller, QUICK)
        quick = await timed_server.window()
        assert quick > QUICK
        # At first each call is waited for in vain, and later none is.
        assert await timed_server.learn(caller, SLOW) == ["task"] * MIN_SAMPLES
        assert await timed_server.window() == quick
        assert await timed_server.learn(caller, SLOW, 60) == ["task"] * 60
        assert await timed_server.window() == 0
        # And back again.
        assert await timed_server.learn(caller, QUICK, 20) != ["task"] * 20
        assert (await timed_server.learn(caller, QUICK, 1)) == ["complete"]


async def test_a_call_that_is_slower_than_the_others_is_answered_with_its_task_after_the_wait() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        await timed_server.learn(caller, QUICK)
        window = await timed_server.window()
        call = await timed_server.begin(caller, SLOW)
        timed_server.clock.advance(window - 0.01)
        await caller.request("tools/list")
        assert not call.done()
        timed_server.clock.advance(0.01)
        assert (await call)["resultType"] == "task"


async def test_a_tool_expected_to_be_quick_returns_its_result_from_the_first_call() -> None:
    timed_server = TimedServer(expected=0.1)
    async with timed_server.open() as caller:
        assert await timed_server.learn(caller, QUICK, 3) == ["complete"] * 3
        assert await timed_server.window() == 0.2 + SLACK
        assert (await timed_server.run(caller, SLOW))["resultType"] == "task"


async def test_a_tool_expected_to_be_slow_returns_a_task_at_once() -> None:
    timed_server = TimedServer(expected=30)
    async with timed_server.open() as caller:
        # The clock stands still, so no call has waited.
        call = asyncio.create_task(caller.call("take", {"seconds": 1}))
        assert (await call)["resultType"] == "task"


async def test_a_tool_expected_to_be_slow_returns_its_result_after_ten_quick_calls() -> None:
    timed_server = TimedServer(expected=30)
    async with timed_server.open() as caller:
        assert await timed_server.learn(caller, QUICK, MIN_SAMPLES + 1) == [*["task"] * MIN_SAMPLES, "complete"]


async def test_a_tool_expected_to_be_quick_returns_a_task_at_once_after_ten_slow_calls() -> None:
    timed_server = TimedServer(expected=0.1)
    async with timed_server.open() as caller:
        assert await timed_server.learn(caller, SLOW) == ["task"] * MIN_SAMPLES
        assert await timed_server.window() == 0


@pytest.mark.parametrize(
    ("settings", "seconds", "answer"),
    [
        ({"inline_for": 0}, QUICK, "task"),
        ({"inline_for": 2}, QUICK, "complete"),
        ({"inline_for": 2}, SLOW, "task"),
        ({"mode": "required"}, QUICK, "task"),
        ({"mode": "required", "inline_for": 2}, QUICK, "complete"),
    ],
)
async def test_a_wait_set_by_the_author_overrides_measurements(
    settings: dict[str, Any], seconds: float, answer: str
) -> None:
    timed_server = TimedServer(**settings)
    async with timed_server.open() as caller:
        assert await timed_server.learn(caller, seconds, 2 * MIN_SAMPLES) == [answer] * 2 * MIN_SAMPLES
        assert await timed_server.window() == settings.get("inline_for", 0)


async def test_a_tool_that_forbids_tasks_returns_none_however_slow_it_was() -> None:
    timed_server = TimedServer(mode="forbidden")
    async with timed_server.open() as caller:
        for _ in range(MIN_SAMPLES + 2):
            call = asyncio.create_task(caller.call("take", {"seconds": SLOW}))
            await timed_server.started.get()
            timed_server.clock.advance(SLOW)
            assert (await call)["resultType"] == "complete"


async def test_a_caller_that_asks_for_a_task_gets_one_however_quick_they_were() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller, v2025_caller(timed_server.server) as older:
        await timed_server.learn(caller, QUICK)
        for _ in range(3):
            call = await timed_server.begin(older, QUICK)
            task_id = (await call)["task"]["taskId"]
            timed_server.clock.advance(QUICK)
            assert text_of(await older.result(task_id)) == "well"
        assert (await timed_server.run(caller, QUICK))["resultType"] == "complete"


async def test_calls_of_every_kind_of_caller_are_measured() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller, v2025_caller(timed_server.server) as older:
        fallback_caller = Caller(caller.transport, capabilities=NO_TASKS)
        for number in range(1, 7):
            call = asyncio.create_task((fallback_caller if number % 2 else older).call("take", {"seconds": QUICK}))
            await timed_server.started.get()
            timed_server.clock.advance(QUICK)
            await call
            assert (await timed_server.explained()).measured == number
        await timed_server.learn(caller, QUICK, 2)
        for _ in range(2):
            task_id = (await (await timed_server.begin(older, QUICK)))["task"]["taskId"]
            timed_server.clock.advance(QUICK)
            await older.result(task_id)
        assert (await timed_server.run(caller, QUICK))["resultType"] == "complete"


@pytest.mark.parametrize("end", ["reported", "refused", "crashed"])
async def test_calls_that_failed_count(end: str) -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        for number in range(1, MIN_SAMPLES + 1):
            await timed_server.run(caller, QUICK, end=end)
            assert (await timed_server.explained()).measured == number
        if end == "refused":
            with pytest.raises(Refused, match="-32042: go there first"):
                await timed_server.run(caller, QUICK, end=end)
        else:
            answer = await timed_server.run(caller, QUICK, end=end)
            assert (answer["resultType"], answer["isError"]) == ("complete", True)


async def test_calls_that_were_cancelled_do_not_count() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        await timed_server.learn(caller, QUICK, MIN_SAMPLES - 1)
        for _ in range(3):
            created = await (await timed_server.begin(caller, SLOW))
            timed_server.clock.advance(QUICK)
            await caller.cancel(created["taskId"])
            assert (await caller.until(created["taskId"]))["status"] == "cancelled"
        assert (await timed_server.explained()).measured == MIN_SAMPLES - 1
        assert (await timed_server.run(caller, QUICK))["resultType"] == "task"
        assert (await timed_server.run(caller, QUICK))["resultType"] == "complete"


async def test_calls_of_callers_that_disconnect_do_not_count() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        fallback_caller = Caller(caller.transport, capabilities=NO_TASKS)
        for _ in range(3):
            call = asyncio.create_task(fallback_caller.call("take", {"seconds": SLOW}))
            task_id = await timed_server.started.get()
            call.cancel()
            await timed_server.server.tasks.engine.wait(task_id)
        assert (await timed_server.explained()).measured == 0


async def test_a_caller_without_tasks_gets_an_earlier_answer_if_the_call_will_take_too_long() -> None:
    timed_server = TimedServer()
    async with timed_server.open() as caller:
        await timed_server.learn(caller, SLOW)
        fallback_caller = Caller(caller.transport, capabilities=NO_TASKS)
        call = asyncio.create_task(fallback_caller.call("take", {"seconds": SLOW}))
        task_id = await timed_server.started.get()
        # Besides the background task that stores measurements, which happens to sleep as often.
        await timed_server.clock.asleep(SHORT_WAIT, 1 + (SHORT_WAIT == DURATIONS_INTERVAL))
        timed_server.clock.advance(SHORT_WAIT)
        assert (await call)["structuredContent"]["task_id"] == task_id
