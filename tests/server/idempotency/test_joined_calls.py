"""A host that gives up on a call and makes it again is joined to its task, if to do it twice is no more than once."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import ToolAnnotations

from raincheck.core.lifecycle import Phase
from tests.support.server.idempotency.example_server import (
    ALICE,
    BOB,
    BY_PLAIN_TIERS,
    BY_TIERS,
    BY_TIERS_WITH_TASKS,
    OVER_WIRES,
    TIERS,
    Host,
    Press,
    hosted,
    served,
)
from tests.support.server.tools import text_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

PAGE = {"page": 7}


@OVER_WIRES
@BY_TIERS
async def test_a_host_that_calls_again_while_the_work_goes_on_is_joined_to_it(tier: str, way: str) -> None:
    press = Press()
    async with hosted(press, tier, way) as host:
        first = await host.begin(PAGE)
        await press.begun.wait()
        await host.leave(first)
        again = await host.begin(PAGE)
        press.open.set()
        assert text_of(await host.result(again)) == "run 1"
        assert len(press.runs) == 1
        assert not press.stopped.is_set()


@OVER_WIRES
@BY_TIERS
async def test_a_host_that_calls_again_after_the_work_has_ended_gets_its_result(tier: str, way: str) -> None:
    press = Press()
    async with hosted(press, tier, way) as host:
        await press.print_unseen(host, PAGE)
        assert await host.call(PAGE) == "run 1"
        assert len(press.runs) == 1


@BY_TIERS_WITH_TASKS
async def test_a_host_with_tasks_that_calls_again_is_handed_the_same_task(tier: str) -> None:
    press = Press(tool={"inline_for": 0})
    async with hosted(press, tier) as host:
        task_id = await host.handle(await host.begin(PAGE))
        assert await host.handle(await host.begin(PAGE)) == task_id
        press.open.set()
        await press.ended()
        # As often as it calls, until it has seen the end.
        for _ in range(3):
            assert await host.handle(await host.begin(PAGE)) == task_id
        assert [one for one, _ in press.runs] == [task_id]


@pytest.mark.parametrize("later", TIERS)
@BY_TIERS
async def test_a_host_that_comes_back_by_another_tier_is_joined_all_the_same(tier: str, later: str) -> None:
    press = Press()
    async with served(press) as site:
        async with site.host(tier) as host, site.host(later) as other:
            await press.print_unseen(host, PAGE)
            assert await other.call(PAGE) == "run 1"
        assert len(press.runs) == 1


async def test_hosts_that_call_at_once_share_one_run_and_all_get_its_result() -> None:
    press = Press()
    async with served(press) as site, site.host("g2") as one, site.host("plain 2025-06-18") as other:
        calls = [(host, await host.begin(PAGE)) for host in (one, other, one, other, one)]
        press.open.set()
        assert [text_of(await host.result(call)) for host, call in calls] == ["run 1"] * 5
        assert len(press.runs) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"page": 1, "how": "fine"}, {"how": "fine", "page": 1}),
        ({"page": {"number": 1, "of": {"a": 1, "b": 2}}}, {"page": {"of": {"b": 2, "a": 1}, "number": 1}}),
        ({}, {}),
    ],
)
@BY_TIERS
async def test_the_order_of_arguments_makes_no_difference(
    tier: str, first: Mapping[str, Any], second: Mapping[str, Any]
) -> None:
    press = Press()
    async with hosted(press, tier) as host:
        await press.print_unseen(host, first)
        assert await host.call(second) == "run 1"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"page": 1}, {"page": 2}),
        ({"page": 1}, {"page": 1, "how": "fine"}),
        ({"page": 1}, {"how": 1}),
        ({"page": 1}, {"page": "1"}),
        ({"page": 1}, {"page": True}),
        ({"page": None}, {"page": "null"}),
        ({"page": [1, 2]}, {"page": [2, 1]}),
    ],
)
@BY_TIERS
async def test_a_call_with_other_arguments_is_another_one(
    tier: str, first: Mapping[str, Any], second: Mapping[str, Any]
) -> None:
    press = Press()
    async with hosted(press, tier) as host:
        await press.print_unseen(host, first)
        assert await host.call(second) == "run 2"
        assert press.runs[0][0] != press.runs[1][0]
        # The first is there for whoever makes that call.
        assert await host.call(first) == "run 1"


@BY_TIERS
async def test_a_call_of_another_tool_with_the_same_arguments_is_another_one(tier: str) -> None:
    press = Press()
    async with hosted(press, tier) as host:
        await press.print_unseen(host, PAGE)
        assert await host.call(PAGE, tool="print_cover") == "run 2"


@BY_TIERS
async def test_a_call_of_another_owner_is_another_one(tier: str) -> None:
    press = Press()
    async with served(press, "http") as site, site.host(tier, ALICE) as alice, site.host(tier, BOB) as bob:
        await press.print_unseen(alice, PAGE)
        assert await bob.call(PAGE) == "run 2"
        assert await alice.call(PAGE) == "run 1"


@BY_TIERS
async def test_two_callers_whom_nobody_can_tell_apart_are_two(tier: str) -> None:
    press = Press()
    async with hosted(press, tier, "http", headers={}) as host:
        first = await host.begin(PAGE)
        await press.begun.wait()
        await host.leave(first)
        press.begun.clear()
        again = await host.begin(PAGE)
        await press.begun.wait()
        press.open.set()
        assert text_of(await host.result(again)) == "run 2"


@pytest.mark.parametrize(
    "annotations",
    [None, ToolAnnotations(), ToolAnnotations(idempotent_hint=False), ToolAnnotations(read_only_hint=True)],
    ids=str,
)
@BY_TIERS
async def test_what_is_not_said_to_be_the_same_when_done_twice_is_done_twice(
    tier: str, annotations: ToolAnnotations | None
) -> None:
    press = Press(tool={"annotations": annotations})
    async with hosted(press, tier) as host:
        first = await host.begin(PAGE)
        await press.begun.wait()
        await host.leave(first)
        if tier.startswith("plain"):
            # Nobody would come back for it.
            await press.stopped.wait()
            assert (await press.ended()).task.phase is Phase.CANCELLED
        press.open.set()
        assert await host.call(PAGE) == "run 2"


@OVER_WIRES
@BY_PLAIN_TIERS
async def test_the_work_of_a_host_without_tasks_that_leaves_goes_on_if_the_same_call_may_come_again(
    tier: str, way: str
) -> None:
    press = Press()
    async with hosted(press, tier, way) as host:
        await press.print_unseen(host, PAGE)
        assert (await press.ended()).task.phase is Phase.COMPLETED
        assert not press.stopped.is_set()


async def finish(press: Press, host: Host) -> str:
    """A task that has ended and that nobody has had."""
    await press.print_unseen(host, PAGE)
    return press.runs[-1][0]


@BY_TIERS
async def test_who_has_had_the_result_and_calls_again_wants_it_done_again(tier: str) -> None:
    press = Press()
    press.open.set()
    async with hosted(press, tier) as host:
        for run in range(1, 4):
            assert await host.call(PAGE) == f"run {run}"


@pytest.mark.parametrize(("method", "run"), [("tasks/get", 1), ("tasks/result", 2)])
async def test_a_host_of_2025_that_has_had_the_result_calls_for_another_task(method: str, run: int) -> None:
    press = Press()
    async with hosted(press, "g1") as host:
        task_id = await finish(press, host)
        await host.caller.request(method, {"taskId": task_id})
        assert await host.call(PAGE) == f"run {run}"


@pytest.mark.parametrize("how", ["get", "until"])
async def test_a_host_of_2026_that_has_seen_the_end_calls_for_another_task(how: str) -> None:
    press = Press()
    async with hosted(press, "g2") as host:
        task_id = await finish(press, host)
        await getattr(host.caller, how)(task_id)
        assert await host.call(PAGE) == "run 2"


async def test_who_is_pushed_the_end_has_seen_it() -> None:
    press = Press()
    async with hosted(press, "g2") as host:
        task_id = await finish(press, host)
        listening: Any = host.caller
        async with listening.listening(task_id) as pushed:
            assert [task["status"] async for task in pushed] == ["completed"]
        assert await host.call(PAGE) == "run 2"


@pytest.mark.parametrize("tool", ["task_result", "task_wait"])
@BY_PLAIN_TIERS
async def test_a_model_that_has_read_the_result_calls_for_another_task(tier: str, tool: str) -> None:
    press = Press()
    async with hosted(press, tier) as host:
        task_id = await finish(press, host)
        assert await host.call({"task_id": task_id}, tool=tool) == "run 1"
        assert await host.call(PAGE) == "run 2"


@BY_TIERS
async def test_who_only_asks_how_it_goes_is_joined_all_the_same(tier: str) -> None:
    press = Press()
    async with hosted(press, tier) as host:
        first = await host.begin(PAGE)
        await press.begun.wait()
        if tier.startswith("plain"):
            told = await host.call({"task_id": press.runs[0][0]}, tool="task_status")
            assert "still running" in told
        else:
            await host.caller.request("tasks/get", {"taskId": press.runs[0][0]})
        await host.leave(first)
        press.open.set()
        await press.ended()
        assert await host.call(PAGE) == "run 1"


@pytest.mark.parametrize(("minutes", "run"), [(0, 1), (9.99, 1), (10.01, 2), (10_000, 2)])
@BY_TIERS
async def test_a_result_that_nobody_has_had_is_what_the_same_call_gets_for_ten_minutes(
    tier: str, minutes: float, run: int
) -> None:
    press = Press()
    async with hosted(press, tier) as host:
        await press.print_unseen(host, PAGE)
        press.clock.advance(60 * minutes)
        assert await host.call(PAGE) == f"run {run}"


async def test_work_that_takes_longer_than_ten_minutes_is_joined_while_it_goes_on() -> None:
    press = Press()
    async with hosted(press, "plain 2025-06-18") as host:
        first = await host.begin(PAGE)
        await press.begun.wait()
        await host.leave(first)
        press.clock.advance(3_600)
        again = await host.begin(PAGE)
        press.open.set()
        assert text_of(await host.answer(again)) == "run 1"


async def test_of_many_that_call_at_once_too_late_for_a_result_one_begins_and_the_others_are_joined() -> None:
    press = Press()
    async with hosted(press, "g2") as host:
        await press.print_unseen(host, PAGE)
        press.clock.advance(601)
        press.open.clear()
        calls = [asyncio.create_task(host.handle(await host.begin(PAGE))) for _ in range(10)]
        assert len({await call for call in calls}) == 1
        press.open.set()
        assert await host.call(PAGE) == "run 2"
        assert len(press.runs) == 2


@BY_TIERS
async def test_a_failure_that_nobody_has_heard_of_is_told_once_and_then_it_is_tried_again(tier: str) -> None:
    press = Press()
    torn = {"page": "torn"}
    async with hosted(press, tier) as host:
        await press.print_unseen(host, torn)
        for runs in (1, 2):
            answer = await host.result(await host.begin(torn))
            assert answer["isError"] is True
            assert len(press.runs) == runs


@BY_TIERS
async def test_who_stopped_the_work_and_calls_again_wants_it_done_again(tier: str) -> None:
    press = Press()
    async with hosted(press, tier) as host:
        first = await host.begin(PAGE)
        await press.begun.wait()
        await host.leave(first)
        task_id = press.runs[0][0]
        if tier.startswith("plain"):
            await host.call({"task_id": task_id}, tool="task_cancel")
        else:
            await host.caller.cancel(task_id)
        press.open.set()
        assert await host.call(PAGE) == "run 2"
