"""The requested and the actual ttl of 2025-11-25 tasks."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from raincheck import Limits, Retention
from raincheck.testing import FakeClock
from tests.support.server.caller_v2025 import v2025_caller
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated, text_of
from tests.support.server.v2025.tools import add_echo, count_tasks, ended, refusal, refused_call

pytestmark = pytest.mark.anyio

WEEK = 7 * 86_400_000
DAY = 86_400_000
LEASED = replace(QUICK, lease=86_400)
"""A lease that does not run out when a test moves the clock."""


@pytest.mark.requirement("v2025-ttl-told", "v2025-ttl-bounded")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, None),
        ({"ttl": None}, None),
        ({"ttl": 1}, 1),
        ({"ttl": 60_000}, 60_000),
        ({"ttl": 60_000.0}, 60_000),
        ({"ttl": 2**31}, WEEK),
        ({"ttl": WEEK - 1}, WEEK - 1),
        ({"ttl": WEEK}, WEEK),
        ({"ttl": WEEK + 1}, WEEK),
        ({"ttl": 2**53}, WEEK),
        ({"ttl": 2**63}, WEEK),
        ({"ttl": 10**30}, WEEK),
        ({"ttl": 1e15}, WEEK),
        ({"ttl": 60_000, "other": "ignored"}, 60_000),
    ],
    ids=str,
)
async def test_a_ttl_is_the_requested_one_up_to_a_limit(asked: dict[str, Any], expected: int | None) -> None:
    server = ExampleServer(works=False, clock=FakeClock())
    add_gated(server)
    async with v2025_caller(server) as caller:
        task = await caller.create("gated", task=asked)
        assert task["ttl"] == expected
        assert "ttl" in task, "null is said, and not left out"
        assert (await caller.get(task["taskId"]))["ttl"] == expected
        assert [one["ttl"] for one in (await caller.page())["tasks"]] == [expected]
        assert (await caller.cancel(task["taskId"])).keys() >= {"ttl"}


@pytest.mark.requirement("v2025-ttl-bounded")
async def test_the_bound_is_the_servers_own_to_set() -> None:
    server = ExampleServer(works=False, settings=replace(QUICK, limits=Limits(ttl=timedelta(seconds=90))))
    add_gated(server)
    async with v2025_caller(server) as caller:
        assert (await caller.create("gated", task={"ttl": DAY}))["ttl"] == 90_000
        assert (await caller.create("gated", task={"ttl": 89_999}))["ttl"] == 89_999


@pytest.mark.parametrize("ttl", [0, -1, -0.5, 1.5, "60000", "", True, False, [60_000], {}, 1e-9, -(10**30)], ids=repr)
async def test_a_ttl_that_is_no_time_is_refused_and_no_task_made(ttl: object) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with v2025_caller(server) as caller:
        refused = await refused_call(caller, "gated", task={"ttl": ttl})
        assert refused.code == -32602
        assert "ttl must be a whole number of milliseconds" in refused.message
        assert len(str(refused.message)) < 200
        assert await count_tasks(server) == 0


async def test_over_http_a_ttl_is_read_in_the_same_way() -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with v2025_caller(server, "http") as caller:
        for ttl in (60_000, 60_000.0):
            assert (await caller.create("gated", task={"ttl": ttl}))["ttl"] == 60_000
        assert (await caller.create("gated", task={"ttl": 10**30}))["ttl"] == WEEK
        for ttl in (0, -1, 1.5, True, "60000"):
            assert "ttl must be a whole number" in (await refused_call(caller, "gated", task={"ttl": ttl})).message


@pytest.mark.parametrize("task", [True, False, 0, 60_000, "", "soon", [], [{"ttl": 1}]], ids=repr)
async def test_the_task_parameter_must_be_an_object(task: object) -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller:
        refused = await refusal(caller, "tools/call", {"name": "say", "arguments": {}, "task": task})
        assert refused.code == -32602
        assert "params.task must be an object" in refused.message
        assert await count_tasks(server) == 0


@pytest.mark.requirement("v2025-ttl-told")
async def test_a_task_that_outlives_its_ttl_is_retained_and_reports_no_ttl() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock, settings=LEASED)
    gate = add_gated(server, retention=Retention(keep=timedelta(seconds=50)))
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated", task={"ttl": 60_000})
        await gate.started.wait()
        clock.advance(59.999)
        assert (await caller.get(task_id))["ttl"] == 60_000
        clock.advance(0.001)
        # The requested ttl has passed. The duration of the work is unknown, so no ttl is promised.
        for _ in range(2):
            task = await caller.get(task_id)
            assert (task["status"], task["ttl"]) == ("working", None)
            assert (await caller.page())["tasks"] == [task]
            clock.advance(30)
        gate.open.set()
        await ended(server, task_id)
        # The task is retained after its end for the tool's time: 120 s and 50 more.
        assert (await caller.get(task_id))["ttl"] == 170_000
        clock.advance(49)
        assert text_of(await caller.result(task_id)) == "through"
        clock.advance(1)
        assert (await refusal(caller, "tasks/get", {"taskId": task_id})).code == -32602


async def test_a_task_that_ends_early_is_retained_for_the_requested_ttl() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock, settings=LEASED)
    add_echo(server, retention=Retention(keep=timedelta(seconds=5)))
    async with v2025_caller(server) as caller:
        task_id = await caller.start("say", {"words": "kept"}, task={"ttl": 60_000})
        await ended(server, task_id)
        assert (await caller.get(task_id))["ttl"] == 60_000
        clock.advance(59.999)
        assert text_of(await caller.result(task_id)) == "kept"
        clock.advance(0.001)
        assert (await refusal(caller, "tasks/result", {"taskId": task_id})).code == -32602


async def test_a_short_ttl_does_not_shorten_the_retention_of_a_tool() -> None:
    """The server may retain a task for longer than requested, and reports for how long."""
    clock = FakeClock()
    server = ExampleServer(clock=clock, settings=LEASED)
    add_echo(server, retention=Retention(keep=timedelta(seconds=100)))
    async with v2025_caller(server) as caller:
        task_id = await caller.start("say", {"words": "kept"}, task={"ttl": 1})
        await ended(server, task_id)
        assert (await caller.get(task_id))["ttl"] == 100_000
        clock.advance(99)
        assert text_of(await caller.result(task_id)) == "kept"


async def test_a_tool_that_has_a_time_of_its_own_promises_it_whatever_was_asked_for() -> None:
    """Callers take creation and ttl for the end of all hope, so less than the work may take is never promised."""
    clock = FakeClock()
    server = ExampleServer(works=False, clock=clock)
    add_gated(server, timeout=100, retention=Retention(keep=timedelta(seconds=50)))
    async with v2025_caller(server) as caller:
        assert (await caller.create("gated"))["ttl"] == 150_000
        assert (await caller.create("gated", task={"ttl": 1_000}))["ttl"] == 150_000
        assert (await caller.create("gated", task={"ttl": 200_000}))["ttl"] == 200_000
