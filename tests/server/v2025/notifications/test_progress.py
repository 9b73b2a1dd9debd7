"""How far a task is, told under the token that came with its call, for as long as the task works."""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Any

import pytest

from raincheck import TaskContext, ToolError
from tests.support.server.caller_v2025 import RELATED, G1Caller, calling
from tests.support.server.example import Shop
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import ON_G1_WIRES, Meter, add_metered, ended

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

PROGRESS = "notifications/progress"
STATUS = "notifications/tasks/status"


async def show_all(caller: G1Caller, meter: Meter, *amounts: float) -> None:
    """Have this reported, each so that it can be told before the next."""
    for done in amounts:
        await meter.show(done, 10)
        await caller.ping()


def amounts_of(caller: G1Caller) -> list[float]:
    return [one["progress"] for one in caller.pushed(PROGRESS)]


@pytest.mark.requirement("g1-progress-token-lives", "g1-related-everywhere")
@pytest.mark.parametrize("token", ["abc", "", "ü \U0001f4a5", "0", 0, 1, -1, 2**40], ids=repr)
async def test_progress_is_told_under_the_token_of_the_call_as_it_was_given(token: str | int) -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("metered", meta={"progressToken": token})
        await meter.show(1, 10, "first")
        await caller.until_progress(1)
        await meter.show(2.5)
        await caller.until_progress(2.5)
        related = {RELATED: {"taskId": task_id}}
        first, second = caller.pushed(PROGRESS)
        assert first == {"progressToken": token, "progress": 1, "total": 10, "message": "first", "_meta": related}
        assert type(first["progressToken"]) is type(token)
        assert (second["progress"], "total" in second) == (2.5, False)
        meter.finish()
        await caller.result(task_id)


@pytest.mark.requirement("g1-progress-token-lives", "g1-related-everywhere")
@ON_G1_WIRES
async def test_progress_goes_on_long_after_the_call_was_answered_and_ends_with_the_task(way: str) -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop, way) as caller:
        task_id = await caller.start("metered", meta={"progressToken": "t"})
        for done in range(1, 4):
            await meter.show(done, 3)
            await caller.until_progress(done)
        meter.finish()
        await caller.result(task_id)
        await caller.until(task_id, "completed")
        await caller.ping()
        methods = [one.message.get("method") for one in caller.came]
        assert PROGRESS not in methods[methods.index(STATUS) :]
        assert amounts_of(caller) == [1, 2, 3]


async def test_progress_never_goes_back_nor_stands_still() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("metered", meta={"progressToken": 1})
        await show_all(caller, meter, 0, 0, 5, 5, 3, 4.9, 7, 1, 7.5)
        meter.finish()
        await caller.result(task_id)
        assert amounts_of(caller) == [0, 5, 7, 7.5]


async def test_progress_is_told_once_whatever_else_changes() -> None:
    shop = Shop()
    told, kept = asyncio.Event(), asyncio.Queue[int]()

    @shop.tasks.tool()
    async def tinker(task: TaskContext) -> str:
        await task.progress(1, 2, "half of it")
        await told.wait()
        for number in range(5):
            await task.variables.set("number", number)
            kept.put_nowait(number)
        return "done"

    async with calling(shop) as caller:
        task_id = await caller.start("tinker", meta={"progressToken": 1})
        await caller.until_progress(1)
        told.set()
        for _ in range(5):
            await kept.get()
            await caller.ping()
        await caller.result(task_id)
        assert amounts_of(caller) == [1]


async def test_who_gives_no_token_is_told_of_no_progress() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop) as caller:
        metas: list[dict[str, Any] | None] = [None, {}]
        for meta in metas:
            task_id = await caller.start("metered", meta=meta)
            await show_all(caller, meter, 1, 2)
            meter.finish()
            await caller.result(task_id)
        assert caller.pushed(PROGRESS) == []


async def test_each_task_is_told_of_under_its_own_token() -> None:
    """The caller fails if a token comes with the id of another task."""
    shop = Shop()
    meters = [add_metered(shop, f"metered-{n}") for n in range(3)]
    async with calling(shop) as caller:
        ids = [await caller.start(f"metered-{n}", meta={"progressToken": n}) for n in range(3)]
        for done in range(1, 4):
            for meter in meters:
                await meter.show(done)
            await caller.ping()
        for meter in meters:
            meter.finish()
        for task_id in ids:
            await caller.result(task_id)
        last = {one["progressToken"]: one["progress"] for one in caller.pushed(PROGRESS)}
        assert last == {0: 3, 1: 3, 2: 3}


@ON_G1_WIRES
async def test_progress_is_for_the_connection_of_the_call_alone(way: str) -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop, way) as caller, calling(shop, way) as other:
        task_id = await caller.start("metered", meta={"progressToken": "mine"})
        waiting = await other.wait(task_id)
        await meter.show(1)
        await caller.until_progress(1)
        meter.finish()
        await waiting.result()
        await other.until(task_id, "completed")
        assert other.pushed(PROGRESS) == []


async def test_over_http_progress_comes_where_somebody_waits_and_else_on_the_sessions_own_stream() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop, "http") as caller:
        task_id = await caller.start("metered", meta={"progressToken": "t"})
        await meter.show(1)
        assert (await caller.until_progress(1)).stream is None
        waiting = await caller.wait(task_id)
        await meter.show(2)
        assert (await caller.until_progress(2)).stream == waiting.id
        await caller.give_up(waiting)
        await waiting.came
        await meter.show(3)
        assert (await caller.until_progress(3)).stream is None
        meter.finish()
        await caller.result(task_id)


async def test_a_result_that_is_waited_for_on_the_same_connection_does_not_take_the_token_away() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("metered", meta={"progressToken": "t"})
        for done in (1, 2):
            waiting = await caller.wait(task_id)
            await meter.show(done)
            await caller.until_progress(done)
            await caller.give_up(waiting)
            await caller.ping()
        meter.finish()
        await caller.result(task_id)


async def test_a_call_that_is_made_again_with_a_token_is_told_under_that_token() -> None:
    shop = Shop()
    meter = add_metered(shop)
    key = {"raincheck/idempotency-key": "mine"}
    async with calling(shop) as caller:
        task_id = await caller.start("metered", meta=key)
        assert await caller.start("metered", meta={**key, "progressToken": "again"}) == task_id
        await meter.show(1)
        meter.finish()
        await caller.result(task_id)
        assert [one["progressToken"] for one in caller.pushed(PROGRESS)] == ["again"]


async def test_a_token_may_be_used_again_when_its_task_has_ended() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop) as caller:
        for _ in range(2):
            task_id = await caller.start("metered", meta={"progressToken": "t"})
            await meter.show(1)
            meter.finish()
            await caller.result(task_id)
            # As far as the caller remembers, that call was never made.
            caller.forget_calls()
        assert amounts_of(caller) == [1, 1]


async def test_a_plain_call_is_told_of_its_progress_as_ever() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop) as caller:
        call = await caller.begin("tools/call", {"name": "metered"}, meta={"progressToken": 5})
        await meter.show(1, 2, "plainly")
        await caller.until_progress(1)
        meter.finish()
        await call.result()
        assert caller.pushed(PROGRESS) == [{"progressToken": 5, "progress": 1, "total": 2, "message": "plainly"}]


async def test_progress_that_was_reported_with_the_last_breath_is_not_told_after_the_end() -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def sprint(task: TaskContext, *, fails: bool) -> str:
        for done in range(50):
            await task.progress(done, 50)
        if fails:
            raise ToolError("out of breath")
        return "there"

    async with calling(shop) as caller:
        for number, fails in enumerate([False, True] * 3):
            task_id = await caller.start("sprint", {"fails": fails}, meta={"progressToken": number})
            await caller.result(task_id)
            await ended(shop, task_id)
            await caller.ping()
            assert _is_quiet_after_the_end([one.message for one in caller.came], number, task_id)


def _is_quiet_after_the_end(messages: list[Message], token: int, task_id: str) -> bool:
    told = [one for one in messages if one.get("params", {}).get("progressToken") == token]
    (end,) = [one for one in messages if one.get("params", {}).get("taskId") == task_id and one["method"] == STATUS]
    return all(messages.index(one) < messages.index(end) for one in told)
