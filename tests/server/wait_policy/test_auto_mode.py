"""What was measured decides: quick calls are answered with their results, slow ones with their tasks, by themselves."""

import asyncio
from typing import Any

import pytest

from raincheck.engine.worker.supervisor import DURATIONS_INTERVAL
from raincheck.server.wait_policy import MIN_SAMPLES, SHORT_WAIT, SLACK
from tests.support.server.caller_v2025 import calling
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.timed_server import QUICK, SLOW, Workshop
from tests.support.server.tools import NO_TASKS, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


async def test_a_tool_that_was_quick_ten_times_is_answered_with_its_result_from_then_on() -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        assert await workshop.learn(caller, QUICK) == ["task"] * MIN_SAMPLES
        assert await workshop.learn(caller, QUICK) == ["complete"] * MIN_SAMPLES
        result = await workshop.run(caller, QUICK)
        assert text_of(result) == "well"
        assert "taskId" not in result


async def test_what_ends_at_once_is_quick() -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        assert await workshop.learn(caller, 0, MIN_SAMPLES + 1) == [*["task"] * MIN_SAMPLES, "complete"]


async def test_a_tool_that_was_slow_ten_times_is_answered_with_its_task_as_before() -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        assert await workshop.learn(caller, SLOW, 2 * MIN_SAMPLES) == ["task"] * 2 * MIN_SAMPLES
        assert await workshop.window() == 0


async def test_a_quick_tool_that_becomes_slow_hands_out_tasks_at_once_when_its_quick_calls_have_faded() -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        await workshop.learn(caller, QUICK)
        quick = await workshop.window()
        assert quick > QUICK
        # At first each of them is waited for in vain, and then nobody waits.
        assert await workshop.learn(caller, SLOW) == ["task"] * MIN_SAMPLES
        assert await workshop.window() == quick
        assert await workshop.learn(caller, SLOW, 60) == ["task"] * 60
        assert await workshop.window() == 0
        # And back again.
        assert await workshop.learn(caller, QUICK, 20) != ["task"] * 20
        assert (await workshop.learn(caller, QUICK, 1)) == ["complete"]


async def test_a_call_that_is_slower_than_the_others_is_answered_with_its_task_after_the_wait() -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        await workshop.learn(caller, QUICK)
        window = await workshop.window()
        call = await workshop.begin(caller, SLOW)
        workshop.clock.advance(window - 0.01)
        await caller.request("tools/list")
        assert not call.done()
        workshop.clock.advance(0.01)
        assert (await call)["resultType"] == "task"


async def test_what_its_author_expects_to_be_quick_is_answered_with_its_result_from_the_first_call_on() -> None:
    workshop = Workshop(expected=0.1)
    async with workshop.open() as caller:
        assert await workshop.learn(caller, QUICK, 3) == ["complete"] * 3
        assert await workshop.window() == 0.2 + SLACK
        assert (await workshop.run(caller, SLOW))["resultType"] == "task"


async def test_what_its_author_expects_to_be_slow_is_a_task_at_once() -> None:
    workshop = Workshop(expected=30)
    async with workshop.open() as caller:
        # The clock stands still, so that nobody could have waited.
        call = asyncio.create_task(caller.call("take", {"seconds": 1}))
        assert (await call)["resultType"] == "task"


async def test_what_its_author_expects_to_be_slow_is_answered_with_its_result_when_ten_were_quick() -> None:
    workshop = Workshop(expected=30)
    async with workshop.open() as caller:
        assert await workshop.learn(caller, QUICK, MIN_SAMPLES + 1) == [*["task"] * MIN_SAMPLES, "complete"]


async def test_what_its_author_expects_to_be_quick_is_a_task_at_once_when_ten_were_slow() -> None:
    workshop = Workshop(expected=0.1)
    async with workshop.open() as caller:
        assert await workshop.learn(caller, SLOW) == ["task"] * MIN_SAMPLES
        assert await workshop.window() == 0


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
async def test_what_the_author_has_set_is_done_whatever_was_measured(
    settings: dict[str, Any], seconds: float, answer: str
) -> None:
    workshop = Workshop(**settings)
    async with workshop.open() as caller:
        assert await workshop.learn(caller, seconds, 2 * MIN_SAMPLES) == [answer] * 2 * MIN_SAMPLES
        assert await workshop.window() == settings.get("inline_for", 0)


async def test_a_tool_that_hands_out_no_tasks_hands_out_none_however_slow_it_was() -> None:
    workshop = Workshop(mode="forbidden")
    async with workshop.open() as caller:
        for _ in range(MIN_SAMPLES + 2):
            call = asyncio.create_task(caller.call("take", {"seconds": SLOW}))
            await workshop.begun.get()
            workshop.clock.advance(SLOW)
            assert (await call)["resultType"] == "complete"


async def test_a_caller_that_asks_for_a_task_gets_one_however_quick_they_were() -> None:
    workshop = Workshop()
    async with workshop.open() as caller, calling(workshop.shop) as older:
        await workshop.learn(caller, QUICK)
        for _ in range(3):
            call = await workshop.begin(older, QUICK)
            task_id = (await call)["task"]["taskId"]
            workshop.clock.advance(QUICK)
            assert text_of(await older.result(task_id)) == "well"
        assert (await workshop.run(caller, QUICK))["resultType"] == "complete"


async def test_calls_of_all_tiers_are_measured() -> None:
    workshop = Workshop()
    async with workshop.open() as caller, calling(workshop.shop) as older:
        plain = Caller(caller.wire, capabilities=NO_TASKS)
        for number in range(1, 7):
            call = asyncio.create_task((plain if number % 2 else older).call("take", {"seconds": QUICK}))
            await workshop.begun.get()
            workshop.clock.advance(QUICK)
            await call
            assert (await workshop.explained()).measured == number
        await workshop.learn(caller, QUICK, 2)
        for _ in range(2):
            task_id = (await (await workshop.begin(older, QUICK)))["task"]["taskId"]
            workshop.clock.advance(QUICK)
            await older.result(task_id)
        assert (await workshop.run(caller, QUICK))["resultType"] == "complete"


@pytest.mark.parametrize("end", ["reported", "refused", "crashed"])
async def test_calls_that_failed_count(end: str) -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        for number in range(1, MIN_SAMPLES + 1):
            await workshop.run(caller, QUICK, end=end)
            assert (await workshop.explained()).measured == number
        if end == "refused":
            with pytest.raises(Refused, match="-32042: go there first"):
                await workshop.run(caller, QUICK, end=end)
        else:
            answer = await workshop.run(caller, QUICK, end=end)
            assert (answer["resultType"], answer["isError"]) == ("complete", True)


async def test_calls_that_were_cancelled_do_not_count() -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        await workshop.learn(caller, QUICK, MIN_SAMPLES - 1)
        for _ in range(3):
            created = await (await workshop.begin(caller, SLOW))
            workshop.clock.advance(QUICK)
            await caller.cancel(created["taskId"])
            assert (await caller.until(created["taskId"]))["status"] == "cancelled"
        assert (await workshop.explained()).measured == MIN_SAMPLES - 1
        assert (await workshop.run(caller, QUICK))["resultType"] == "task"
        assert (await workshop.run(caller, QUICK))["resultType"] == "complete"


async def test_the_work_of_a_caller_that_leaves_does_not_count() -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        plain = Caller(caller.wire, capabilities=NO_TASKS)
        for _ in range(3):
            call = asyncio.create_task(plain.call("take", {"seconds": SLOW}))
            task_id = await workshop.begun.get()
            call.cancel()
            await workshop.shop.tasks.engine.wait(task_id)
        assert (await workshop.explained()).measured == 0


async def test_a_caller_without_tasks_is_told_sooner_of_a_call_that_will_take_too_long() -> None:
    workshop = Workshop()
    async with workshop.open() as caller:
        await workshop.learn(caller, SLOW)
        plain = Caller(caller.wire, capabilities=NO_TASKS)
        call = asyncio.create_task(plain.call("take", {"seconds": SLOW}))
        task_id = await workshop.begun.get()
        # Beside whoever tells the store now and then what was measured, and happens to do so as often.
        await workshop.clock.asleep(SHORT_WAIT, 1 + (SHORT_WAIT == DURATIONS_INTERVAL))
        workshop.clock.advance(SHORT_WAIT)
        assert (await call)["structuredContent"]["task_id"] == task_id
