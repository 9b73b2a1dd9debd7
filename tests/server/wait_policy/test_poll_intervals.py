"""Poll intervals follow the time that a task probably has left, and excessive polls are refused."""

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck import Owner, TaskContext
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task, TaskId, Tool
from raincheck.server.wait_policy import (
    BUSY_POLL_COUNT,
    MAX_INPUT_INTERVAL,
    MAX_INTERVAL,
    MAX_TRACKED_POLLS,
    MIN_INTERVAL,
    MIN_SAMPLES,
    WaitPolicy,
)
from raincheck.testing import FakeClock
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, ExampleServer

pytestmark = pytest.mark.anyio

ALICE, BOB = Owner.token("", "alice"), Owner.token("", "bob")

SECOND, MINUTE = 1.024, 65.536
"""About: the upper edges of their buckets, so that a histogram has exactly these values."""

_numbers = count(1)


def working(clock: FakeClock, tool: str = "report", **fields: Any) -> Task:
    """Return a task that is created now."""
    now = clock.now()
    base = Task(TaskId(f"task-{next(_numbers)}"), "shop", ALICE, Tool(tool), now, now, Phase.RUNNING)
    return replace(base, **fields)


def policy_with(clock: FakeClock, **took: tuple[float, ...]) -> WaitPolicy:
    """The pace where tasks of tools are known to have taken so long."""
    known = {
        tool: reduce(DurationHistogram.with_duration, seconds * MIN_SAMPLES, DurationHistogram())
        for tool, seconds in took.items()
    }
    return WaitPolicy(clock, lambda tool: known.get(tool, DurationHistogram()), lambda _: None)


def test_the_poll_interval_follows_the_estimated_time_left() -> None:
    clock = FakeClock()
    wait_policy = policy_with(clock, report=(MINUTE, MINUTE, 50 * MINUTE))
    task = working(clock)
    assert wait_policy.poll_interval(task) == MINUTE / 8
    clock.advance(32)
    assert wait_policy.poll_interval(task) == pytest.approx((MINUTE - 32) / 8)
    clock.advance(24)
    # What has passed counts too, so that a guess that was wrong does little harm.
    assert wait_policy.poll_interval(task) == 56 / 16
    # Of another tool nothing is known.
    assert wait_policy.poll_interval(working(clock, "other")) == MIN_INTERVAL


def test_the_estimated_time_left_comes_from_tasks_that_took_longer() -> None:
    clock = FakeClock()
    wait_policy = policy_with(clock, report=(SECOND, SECOND, SECOND, SECOND, 4 * MINUTE))
    task = working(clock)
    # It will probably be one of the quick ones, until it is not.
    assert wait_policy.poll_interval(task) == MIN_INTERVAL
    clock.advance(1.1)
    assert wait_policy.poll_interval(task) == pytest.approx((4 * MINUTE - 1.1) / 8)
    clock.advance(2 * MINUTE)
    assert wait_policy.poll_interval(task) == pytest.approx((2 * MINUTE - 1.1) / 8)
    clock.advance(2 * MINUTE)
    # It has taken longer than all: nothing is known of such.
    assert wait_policy.poll_interval(task) == pytest.approx((4 * MINUTE + 1.1) / 16)


def test_without_an_estimate_the_poll_interval_grows_with_time() -> None:
    clock = FakeClock()
    wait_policy, task = policy_with(clock), working(clock)
    paces: list[float] = []
    for seconds in (0, 1, 10, 100, 1_000, 10_000, 10_000_000):
        clock.advance(seconds)
        paces.append(wait_policy.poll_interval(task))
    assert paces == [MIN_INTERVAL, MIN_INTERVAL, 11 / 16, 111 / 16, MAX_INTERVAL, MAX_INTERVAL, MAX_INTERVAL]


def test_the_poll_interval_is_bounded() -> None:
    clock = FakeClock()
    # Clocks are set back now and then.
    wait_policy = policy_with(clock, long=(10**9,), short=(0.001,), backwards=(-50,))
    assert wait_policy.poll_interval(working(clock, "long")) == MAX_INTERVAL
    assert wait_policy.poll_interval(working(clock, "short")) == MIN_INTERVAL
    assert wait_policy.poll_interval(working(clock, "backwards")) == MIN_INTERVAL
    assert (
        wait_policy.poll_interval(working(clock, "backwards", created_at=clock.now() + timedelta(days=9)))
        == MIN_INTERVAL
    )
    for tool in ("long", "short", "backwards", "other"):
        milliseconds = wait_policy.poll_interval_ms(working(clock, tool))
        assert type(milliseconds) is int
        assert milliseconds >= 1


def test_the_poll_interval_of_a_sleeping_task_follows_its_wake_up() -> None:
    clock = FakeClock()
    wait_policy = policy_with(clock)
    task = working(clock, phase=Phase.PARKED, due_at=clock.now() + timedelta(seconds=400))
    assert wait_policy.poll_interval(task) == 50
    clock.advance(360)
    assert wait_policy.poll_interval(task) == 360 / 16
    clock.advance(100)
    assert wait_policy.poll_interval(task) == 460 / 16


def test_the_poll_interval_of_a_task_that_waits_for_input_follows_the_wait() -> None:
    clock = FakeClock()
    wait_policy = policy_with(clock, report=(10_000,))
    task = working(clock, phase=Phase.PARKED, open_inputs=1)
    clock.advance(1_000)
    asking = replace(task, updated_at=clock.now())
    assert wait_policy.poll_interval(asking) == MIN_INTERVAL
    clock.advance(40)
    assert wait_policy.poll_interval(asking) == 5
    clock.advance(100_000)
    assert wait_policy.poll_interval(asking) == MAX_INPUT_INTERVAL
    assert wait_policy.poll_interval(replace(asking, updated_at=clock.now() + timedelta(days=1))) == MIN_INTERVAL


def test_the_number_of_tracked_polls_is_bounded() -> None:
    wait_policy = policy_with(FakeClock())
    for number in range(MAX_TRACKED_POLLS + 500):
        with wait_policy.track_poll(ALICE, str(number)):
            pass
    sizes = [len(value) for value in vars(wait_policy).values() if hasattr(value, "__len__")]
    assert max(sizes) == MAX_TRACKED_POLLS


def test_polls_are_refused_only_if_much_too_fast_and_while_many_are_in_flight() -> None:
    clock = FakeClock()
    wait_policy = policy_with(clock)

    def poll(task_id: str, owner: Owner = ALICE) -> None:
        with wait_policy.track_poll(owner, task_id):
            pass

    poll("slow")
    clock.advance(MIN_INTERVAL)
    poll("fast")
    for _ in range(100):
        poll("fast")
    with ExitStack() as under_way:
        for number in range(BUSY_POLL_COUNT - 1):
            under_way.enter_context(wait_policy.track_poll(ALICE, f"other-{number}"))
        poll("fast")
        with wait_policy.track_poll(ALICE, "the-last-straw"):
            with pytest.raises(MCPError) as refused:
                poll("fast")
            assert refused.value.error.code == -32010
            assert refused.value.error.data == {"limit": "polls", "retryAfterMs": 500}
            assert "much faster than its poll interval" in refused.value.error.message
            poll("slow")
            # Another owner who knows the id can neither be taken for this one nor get it refused.
            poll("fast", BOB)
            # Waiting for the suggested time is enough.
            clock.advance(MIN_INTERVAL)
            poll("fast")
            clock.advance(MIN_INTERVAL)
            poll("fast", BOB)
            poll("fast")
        poll("fast")


def test_failed_polls_do_not_count_as_in_flight() -> None:
    wait_policy = policy_with(FakeClock())
    for _ in range(BUSY_POLL_COUNT + 1):
        with pytest.raises(LookupError), wait_policy.track_poll(ALICE, "task"):
            raise LookupError
    with wait_policy.track_poll(ALICE, "task"):
        pass


def make(clock: FakeClock, go: asyncio.Event, store: str | Path = "memory:", **options: Any) -> ExampleServer:
    # No lease runs out, however far the clock is moved.
    options.setdefault("settings", replace(QUICK, lease=86_400))
    server = ExampleServer(store, clock=clock, **options)

    @server.tasks.tool(inline_for=0)
    async def work(task: TaskContext) -> str:
        await task.progress(1)
        await go.wait()
        return "done"

    @server.tasks.tool()
    async def sleep(seconds: float, task: TaskContext) -> str:
        await task.sleep(seconds)
        return "slept"

    @server.tasks.tool()
    async def ask(task: TaskContext) -> str:
        return str(await task.elicit("Go on?", {"type": "object"}))

    return server


async def run_for(caller: Caller, clock: FakeClock, go: asyncio.Event, seconds: float) -> str:
    """A task that takes so many seconds."""
    go.clear()
    task_id = await caller.start("work")
    clock.advance(seconds)
    go.set()
    await caller.result(task_id)
    go.clear()
    return task_id


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return "memory:" if request.param == "memory" else tmp_path / "tasks.db"


async def test_the_poll_interval_follows_the_durations_of_earlier_tasks(store: str | Path) -> None:
    clock, go = FakeClock(), asyncio.Event()
    async with make(clock, go, store).open() as caller:
        for _ in range(MIN_SAMPLES - 1):
            slow = await run_for(caller, clock, go, MINUTE)
            # However often it is looked at, it counts once.
            await caller.get(slow)
        created = await caller.call("work")
        assert created["pollIntervalMs"] == 500
        clock.advance(MINUTE)
        go.set()
        await caller.result(created["taskId"])
        go.clear()
        created = await caller.call("work")
        assert created["pollIntervalMs"] == round(MINUTE / 8 * 1_000)
        clock.advance(20)
        polled = await caller.get(created["taskId"])
        assert type(polled["pollIntervalMs"]) is int
        assert polled["pollIntervalMs"] == round((MINUTE - 20) / 8 * 1_000)
        async with caller.listening(created["taskId"]) as pushed:
            assert (await anext(pushed))["pollIntervalMs"] == polled["pollIntervalMs"]
        go.set()


async def test_durations_of_earlier_tasks_are_known_after_a_restart(tmp_path: Path) -> None:
    clock, go = FakeClock(), asyncio.Event()
    async with make(clock, go, tmp_path / "tasks.db").open() as caller:
        for _ in range(MIN_SAMPLES):
            await run_for(caller, clock, go, MINUTE)
    async with make(clock, go, tmp_path / "tasks.db").open() as caller:
        assert (await caller.call("work"))["pollIntervalMs"] == round(MINUTE / 8 * 1_000)
        go.set()


async def test_queued_tasks_do_not_distort_the_durations_of_earlier_ones(tmp_path: Path) -> None:
    clock, go = FakeClock(), asyncio.Event()
    server = make(clock, go, tmp_path / "tasks.db")
    async with server.open() as caller:
        for _ in range(MIN_SAMPLES):
            await run_for(caller, clock, go, MINUTE)
    idle = make(clock, go, tmp_path / "tasks.db", works=False, settings=None)
    async with idle.open() as caller:
        await caller.start("ask")
        await asyncio.gather(*(idle.tasks.engine.submit("ask") for _ in range(998)))
        await caller.start("ask")
    async with make(clock, go, tmp_path / "tasks.db", works=False, settings=None).open() as caller:
        clock.advance(60)
        assert (await caller.call("work"))["pollIntervalMs"] == round(MINUTE / 8 * 1_000)


async def test_every_status_comes_with_a_whole_number_of_milliseconds() -> None:
    clock, go = FakeClock(), asyncio.Event()
    async with make(clock, go).open() as caller:
        asking, sleeping = await caller.start("ask"), await caller.start("sleep", {"seconds": 400})
        ended = await run_for(caller, clock, go, 0.0001)
        await caller.until(asking, "input_required")
        seen = {one: await caller.get(one) for one in (asking, sleeping, ended)}
        assert seen[asking]["pollIntervalMs"] == 500
        assert seen[ended]["pollIntervalMs"] == 500
        assert all(type(one["pollIntervalMs"]) is int for one in seen.values())
        await caller.cancel(sleeping)
        assert (await caller.get(sleeping))["pollIntervalMs"] >= 1


async def test_the_error_of_a_refused_poll_says_when_to_retry() -> None:
    clock, go = FakeClock(), asyncio.Event()
    server = make(clock, go)
    async with server.open() as caller:
        task_id = await caller.start("work")
        await caller.get(task_id)
        with ExitStack() as under_way:
            wait_policy = server.tasks._wait_policy  # pyright: ignore[reportPrivateUsage] - a store in memory is never slow enough
            for number in range(BUSY_POLL_COUNT):
                under_way.enter_context(wait_policy.track_poll(BOB, str(number)))
            with pytest.raises(Refused) as refused:
                await caller.get(task_id)
            assert (refused.value.code, refused.value.data) == (-32010, {"limit": "polls", "retryAfterMs": 500})
            # Neither updates nor streams are polls.
            await caller.update(task_id, {})
            async with caller.listening(task_id) as pushed:
                assert (await anext(pushed))["status"] == "working"
            clock.advance(0.5)
            assert (await caller.get(task_id))["status"] == "working"
        go.set()
