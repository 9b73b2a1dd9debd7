"""A host that gives up on a call and repeats it is joined to its task, if the tool is declared idempotent."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import ToolAnnotations

from raincheck.core.lifecycle import Phase
from tests.support.server.idempotency.example_server import (
    ALICE,
    BOB,
    BY_FALLBACK_TIERS,
    BY_TIERS,
    BY_TIERS_WITH_TASKS,
    OVER_TRANSPORTS,
    TIERS,
    Host,
    PrintServer,
    connected_host,
    served,
)
from tests.support.server.tools import text_of

pytestmark = pytest.mark.anyio

PAGE = {"page": 7}


@OVER_TRANSPORTS
@BY_TIERS
async def test_a_host_that_calls_again_while_the_task_runs_is_joined(tier: str, way: str) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, tier, way) as host:
        first = await host.begin(PAGE)
        await print_server.started.wait()
        await host.leave(first)
        again = await host.begin(PAGE)
        print_server.open.set()
        assert text_of(await host.result(again)) == "run 1"
        assert len(print_server.runs) == 1
        assert not print_server.stopped.is_set()


@OVER_TRANSPORTS
@BY_TIERS
async def test_a_host_that_calls_again_after_the_work_has_ended_gets_its_result(tier: str, way: str) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, tier, way) as host:
        await print_server.print_unseen(host, PAGE)
        assert await host.call(PAGE) == "run 1"
        assert len(print_server.runs) == 1


@BY_TIERS_WITH_TASKS
async def test_a_host_with_tasks_that_calls_again_gets_the_same_task(tier: str) -> None:
    print_server = PrintServer(tool={"inline_for": 0})
    async with connected_host(print_server, tier) as host:
        task_id = await host.handle(await host.begin(PAGE))
        assert await host.handle(await host.begin(PAGE)) == task_id
        print_server.open.set()
        await print_server.ended()
        # As often as it calls, until it has seen the end.
        for _ in range(3):
            assert await host.handle(await host.begin(PAGE)) == task_id
        assert [one for one, _ in print_server.runs] == [task_id]


@pytest.mark.parametrize("later", TIERS)
@BY_TIERS
async def test_a_host_that_calls_again_in_another_generation_is_joined(tier: str, later: str) -> None:
    print_server = PrintServer()
    async with served(print_server) as site:
        async with site.host(tier) as host, site.host(later) as other:
            await print_server.print_unseen(host, PAGE)
            assert await other.call(PAGE) == "run 1"
        assert len(print_server.runs) == 1


async def test_hosts_that_call_at_once_share_one_run_and_all_get_its_result() -> None:
    print_server = PrintServer()
    async with served(print_server) as site, site.host("v2026") as one, site.host("fallback 2025-06-18") as other:
        calls = [(host, await host.begin(PAGE)) for host in (one, other, one, other, one)]
        print_server.open.set()
        assert [text_of(await host.result(call)) for host, call in calls] == ["run 1"] * 5
        assert len(print_server.runs) == 1


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
    print_server = PrintServer()
    async with connected_host(print_server, tier) as host:
        await print_server.print_unseen(host, first)
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
    print_server = PrintServer()
    async with connected_host(print_server, tier) as host:
        await print_server.print_unseen(host, first)
        assert await host.call(second) == "run 2"
        assert print_server.runs[0][0] != print_server.runs[1][0]
        # The first task is joined by the same call.
        assert await host.call(first) == "run 1"


@BY_TIERS
async def test_a_call_of_another_tool_with_the_same_arguments_is_another_one(tier: str) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, tier) as host:
        await print_server.print_unseen(host, PAGE)
        assert await host.call(PAGE, tool="print_cover") == "run 2"


@BY_TIERS
async def test_a_call_of_another_owner_is_another_one(tier: str) -> None:
    print_server = PrintServer()
    async with served(print_server, "http") as site, site.host(tier, ALICE) as alice, site.host(tier, BOB) as bob:
        await print_server.print_unseen(alice, PAGE)
        assert await bob.call(PAGE) == "run 2"
        assert await alice.call(PAGE) == "run 1"


@BY_TIERS
async def test_indistinguishable_callers_are_not_joined(tier: str) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, tier, "http", headers={}) as host:
        first = await host.begin(PAGE)
        await print_server.started.wait()
        await host.leave(first)
        print_server.started.clear()
        again = await host.begin(PAGE)
        await print_server.started.wait()
        print_server.open.set()
        assert text_of(await host.result(again)) == "run 2"


@pytest.mark.parametrize(
    "annotations",
    [None, ToolAnnotations(), ToolAnnotations(idempotent_hint=False), ToolAnnotations(read_only_hint=True)],
    ids=str,
)
@BY_TIERS
async def test_a_tool_that_is_not_declared_idempotent_runs_twice(
    tier: str, annotations: ToolAnnotations | None
) -> None:
    print_server = PrintServer(tool={"annotations": annotations})
    async with connected_host(print_server, tier) as host:
        first = await host.begin(PAGE)
        await print_server.started.wait()
        await host.leave(first)
        if tier.startswith("fallback"):
            # Nobody would come back for it.
            await print_server.stopped.wait()
            assert (await print_server.ended()).task.phase is Phase.CANCELLED
        print_server.open.set()
        assert await host.call(PAGE) == "run 2"


@OVER_TRANSPORTS
@BY_FALLBACK_TIERS
async def test_idempotent_work_continues_when_its_host_disconnects(tier: str, way: str) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, tier, way) as host:
        await print_server.print_unseen(host, PAGE)
        assert (await print_server.ended()).task.phase is Phase.COMPLETED
        assert not print_server.stopped.is_set()


async def finish(print_server: PrintServer, host: Host) -> str:
    """Run a task to its end without retrieving its result."""
    await print_server.print_unseen(host, PAGE)
    return print_server.runs[-1][0]


@BY_TIERS
async def test_a_call_repeated_after_its_result_was_retrieved_runs_again(tier: str) -> None:
    print_server = PrintServer()
    print_server.open.set()
    async with connected_host(print_server, tier) as host:
        for run in range(1, 4):
            assert await host.call(PAGE) == f"run {run}"


@pytest.mark.parametrize(("method", "run"), [("tasks/get", 1), ("tasks/result", 2)])
async def test_a_2025_host_that_retrieved_the_result_gets_a_new_task(method: str, run: int) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, "v2025") as host:
        task_id = await finish(print_server, host)
        await host.caller.request(method, {"taskId": task_id})
        assert await host.call(PAGE) == f"run {run}"


@pytest.mark.parametrize("how", ["get", "until"])
async def test_a_2026_host_that_read_the_outcome_gets_a_new_task(how: str) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, "v2026") as host:
        task_id = await finish(print_server, host)
        await getattr(host.caller, how)(task_id)
        assert await host.call(PAGE) == "run 2"


async def test_a_pushed_outcome_counts_as_retrieved() -> None:
    print_server = PrintServer()
    async with connected_host(print_server, "v2026") as host:
        task_id = await finish(print_server, host)
        listening: Any = host.caller
        async with listening.listening(task_id) as pushed:
            assert [task["status"] async for task in pushed] == ["completed"]
        assert await host.call(PAGE) == "run 2"


@pytest.mark.parametrize("tool", ["task_result", "task_wait"])
@BY_FALLBACK_TIERS
async def test_a_model_that_read_the_result_gets_a_new_task(tier: str, tool: str) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, tier) as host:
        task_id = await finish(print_server, host)
        assert await host.call({"task_id": task_id}, tool=tool) == "run 1"
        assert await host.call(PAGE) == "run 2"


@BY_TIERS
async def test_a_status_request_does_not_count_as_retrieval(tier: str) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, tier) as host:
        first = await host.begin(PAGE)
        await print_server.started.wait()
        if tier.startswith("fallback"):
            reported = await host.call({"task_id": print_server.runs[0][0]}, tool="task_status")
            assert "still running" in reported
        else:
            await host.caller.request("tasks/get", {"taskId": print_server.runs[0][0]})
        await host.leave(first)
        print_server.open.set()
        await print_server.ended()
        assert await host.call(PAGE) == "run 1"


@pytest.mark.parametrize(("minutes", "run"), [(0, 1), (9.99, 1), (10.01, 2), (10_000, 2)])
@BY_TIERS
async def test_an_unretrieved_result_is_returned_to_the_same_call_for_ten_minutes(
    tier: str, minutes: float, run: int
) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, tier) as host:
        await print_server.print_unseen(host, PAGE)
        print_server.clock.advance(60 * minutes)
        assert await host.call(PAGE) == f"run {run}"


async def test_work_that_takes_longer_than_ten_minutes_is_joined_while_it_runs() -> None:
    print_server = PrintServer()
    async with connected_host(print_server, "fallback 2025-06-18") as host:
        first = await host.begin(PAGE)
        await print_server.started.wait()
        await host.leave(first)
        print_server.clock.advance(3_600)
        again = await host.begin(PAGE)
        print_server.open.set()
        assert text_of(await host.answer(again)) == "run 1"


async def test_of_concurrent_calls_after_the_join_window_one_starts_and_the_others_join() -> None:
    print_server = PrintServer()
    async with connected_host(print_server, "v2026") as host:
        await print_server.print_unseen(host, PAGE)
        print_server.clock.advance(601)
        print_server.open.clear()
        calls = [asyncio.create_task(host.handle(await host.begin(PAGE))) for _ in range(10)]
        assert len({await call for call in calls}) == 1
        print_server.open.set()
        assert await host.call(PAGE) == "run 2"
        assert len(print_server.runs) == 2


@BY_TIERS
async def test_an_unretrieved_failure_is_returned_once_and_then_the_call_runs_again(tier: str) -> None:
    print_server = PrintServer()
    torn = {"page": "torn"}
    async with connected_host(print_server, tier) as host:
        await print_server.print_unseen(host, torn)
        for runs in (1, 2):
            answer = await host.result(await host.begin(torn))
            assert answer["isError"] is True
            assert len(print_server.runs) == runs


@BY_TIERS
async def test_a_call_repeated_after_a_cancel_runs_again(tier: str) -> None:
    print_server = PrintServer()
    async with connected_host(print_server, tier) as host:
        first = await host.begin(PAGE)
        await print_server.started.wait()
        await host.leave(first)
        task_id = print_server.runs[0][0]
        if tier.startswith("fallback"):
            await host.call({"task_id": task_id}, tool="task_cancel")
        else:
            await host.caller.cancel(task_id)
        print_server.open.set()
        assert await host.call(PAGE) == "run 2"
