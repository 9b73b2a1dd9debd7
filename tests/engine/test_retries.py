"""Retries follow the policy: number, waits, errors and deadlines."""

import asyncio
import threading
from datetime import timedelta

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.records import Task
from raincheck.engine import Settings, SyncTaskContext, TaskContext
from raincheck.engine.execution import failures
from raincheck.stores.commit import sweep
from raincheck.testing import FakeClock
from tests.support.engine.harness import QUICK, EngineHarness, outcome_of
from tests.support.engine.observed_store import make_clock

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(attempts=3, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)


async def parked_for(harness: EngineHarness, task: Task, attempt: int) -> timedelta:
    """How long the task waits after this attempt."""

    def is_parked(task: Task) -> bool:
        return task.phase is Phase.PARKED and task.attempt_number == attempt

    view = await harness.engine.wait(task.id, until=is_parked)
    assert view.task.due_at is not None
    return view.task.due_at - view.task.updated_at


async def test_a_task_is_retried_as_its_policy_says_with_growing_waits(harness: EngineHarness) -> None:
    clock = make_clock()
    policy = RetryPolicy(
        attempts=4, first_wait=timedelta(seconds=10), factor=3, max_wait=timedelta(seconds=60), jitter=0
    )

    @harness.toolbox.tool(retry=policy)
    async def fail() -> None:
        raise ConnectionError

    async with harness.running(clock=clock) as engine:
        task = await engine.submit("fail")
        for attempt, seconds in ((1, 10), (2, 30), (3, 60)):
            assert await parked_for(harness, task, attempt) == timedelta(seconds=seconds)
            clock.advance(seconds - 1)
            assert (await engine.view(task.id)).task.attempt_number == attempt, "not yet"
            clock.advance(1)
        ended = (await engine.wait(task.id)).task
        assert (ended.phase, ended.attempt_number) == (Phase.FAILED, 4)
        assert (await harness.events(task.id)).count("retry") == 3


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 10.0), (0.5, 8.0), (1.0, 6.0)])
async def test_the_wait_before_a_retry_has_jitter(
    harness: EngineHarness, chance: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "draw_jitter", lambda: chance)

    @harness.toolbox.tool(retry=RetryPolicy(first_wait=timedelta(seconds=10), jitter=0.4))
    async def fail() -> None:
        raise ConnectionError

    async with harness.running(clock=make_clock()) as engine:
        task = await engine.submit("fail")
        assert await parked_for(harness, task, 1) == timedelta(seconds=seconds)


async def test_each_attempt_draws_new_jitter(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=RetryPolicy(first_wait=timedelta(seconds=100), jitter=1))
    async def fail() -> None:
        raise ConnectionError

    async with harness.running(clock=make_clock()) as engine:
        tasks = [await engine.submit("fail") for _ in range(10)]
        waits = {await parked_for(harness, task, 1) for task in tasks}
    assert len(waits) == 10


async def test_only_the_named_errors_are_retried(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=AT_ONCE, retry_on=(ConnectionError, TimeoutError))
    async def fail(task: TaskContext) -> None:
        raise ConnectionResetError if task.attempt == 1 else KeyError

    async with harness.running():
        task, _ = await harness.failure_of("fail")
    assert task.attempt_number == 2


async def test_an_attempt_that_takes_too_long_is_stopped_and_counts_as_a_timeout(harness: EngineHarness) -> None:
    clock, stopped = make_clock(), list[int]()

    @harness.toolbox.tool(attempt_timeout=30, retry=AT_ONCE, retry_on=(TimeoutError,))
    async def hang(task: TaskContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(task.attempt)

    async with harness.running(clock=clock) as engine:
        task = await engine.submit("hang")
        for attempt in (1, 2, 3):
            running = (await engine.wait(task.id, until=lambda task: task.attempt_number == attempt)).task  # noqa: B023 - awaited here
            await asyncio.sleep(0.05)
            assert running.phase is Phase.RUNNING
            clock.advance(30)
        view = await engine.wait(task.id)
    assert view.task.phase is Phase.FAILED
    assert outcome_of(view) == {"kind": "timeout", "message": "attempt 3 took longer than 30 s"}
    assert stopped == [1, 2, 3]


async def test_an_attempt_that_takes_too_long_is_not_retried_if_timeouts_are_not_named(
    harness: EngineHarness,
) -> None:
    @harness.toolbox.tool(attempt_timeout=0.05, retry=AT_ONCE, retry_on=(ConnectionError,))
    async def hang() -> None:
        await asyncio.Event().wait()

    async with harness.running():
        task, error = await harness.failure_of("hang")
    assert (task.attempt_number, error["kind"]) == (1, "timeout")


async def test_a_thread_that_takes_too_long_is_abandoned_and_its_later_writes_are_rejected(
    harness: EngineHarness,
) -> None:
    may_end, ended, said = threading.Event(), threading.Event(), list[str]()

    @harness.toolbox.tool(attempt_timeout=0.05, grace=0.05, retry=RetryPolicy(attempts=1))
    def hang(task: SyncTaskContext) -> str:
        may_end.wait(20)
        try:
            task.step("late", list)
        except BaseException as error:
            said.append(type(error).__name__)
            raise
        finally:
            ended.set()
        return "too late"

    async with harness.running() as engine:
        task, error = await harness.failure_of("hang")
        assert error["kind"] == "timeout"
        may_end.set()
        assert await asyncio.to_thread(ended.wait, 10)
        assert said == ["BodyStopped"]
        assert (await engine.view(task.id)).task == task


async def test_parked_time_does_not_count_against_an_attempt(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool(attempt_timeout=30)
    async def nap(task: TaskContext) -> int:
        await task.sleep(3_600)
        return task.attempt

    async with harness.running(Settings(park_after=0), clock=clock) as engine:
        task = await engine.submit("nap")
        await harness.reach(task.id, Phase.PARKED)
        clock.advance(3_600)
        assert (await engine.wait(task.id)).outcome == b"2"


async def expires(harness: EngineHarness, task: Task, clock: FakeClock) -> None:
    """The task ends at its deadline, and its waiters are woken."""
    waiting = asyncio.create_task(harness.engine.wait(task.id))
    clock.advance(59)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    clock.advance(3)  # the sweeper looks every one and a half
    view = await asyncio.wait_for(waiting, 20)
    assert (view.task.phase, view.task.status_message) == (
        Phase.FAILED,
        "the task did not end before its deadline",
    )
    assert outcome_of(view) == {"kind": "expired", "message": view.task.status_message}
    assert (await harness.events(task.id))[-1] == "expire"


async def test_a_running_task_ends_at_its_deadline_and_its_body_is_stopped(harness: EngineHarness) -> None:
    clock, stopped = make_clock(), asyncio.Event()

    @harness.toolbox.tool(timeout=60)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with harness.running(clock=clock) as engine:
        task = await engine.submit("hang")
        await harness.reach(task.id, Phase.RUNNING)
        await asyncio.sleep(0.02)
        await expires(harness, task, clock)
        await asyncio.wait_for(stopped.wait(), 20)


async def test_a_parked_task_ends_at_its_deadline(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool(timeout=60)
    async def ask(task: TaskContext) -> None:
        await task.elicit("now?", {"type": "object"})

    async with harness.running(Settings(park_after=0), clock=clock) as engine:
        task = await engine.submit("ask")
        await harness.reach(task.id, Phase.PARKED)
        await expires(harness, task, clock)


async def test_a_queued_task_ends_at_its_deadline_without_a_worker(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool(timeout=60)
    async def never() -> None: ...

    async with harness.running(works=False, clock=clock) as engine:
        await expires(harness, await engine.submit("never"), clock)


async def test_a_task_that_must_not_run_twice_fails_when_it_is_interrupted(harness: EngineHarness) -> None:
    clock, began = make_clock(), asyncio.Event()

    @harness.toolbox.tool(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    async def pay() -> None:
        began.set()
        await asyncio.Event().wait()

    async with harness.running(clock=clock) as engine:
        task = await engine.submit("pay")
        await began.wait()
        # What another process does when it finds that the lease has run out.
        (swept,) = await sweep(harness.store, now=clock.now() + timedelta(seconds=QUICK.lease))
        view = await engine.wait(task.id)
    assert swept.phase is view.task.phase is Phase.FAILED
    assert "this tool must not be run twice" in (view.task.status_message or "")


async def test_a_finished_step_resets_the_count_of_failed_attempts(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=RetryPolicy(attempts=2, first_wait=timedelta(0), jitter=0))
    async def get_on(task: TaskContext) -> int:
        for number in range(5):
            await task.step(f"step {number}", lambda: None)
            if task.attempt == number + 1:
                raise ConnectionError
        return task.attempt

    async with harness.running():
        assert await harness.result_of("get_on") == 6


async def test_attempts_that_finish_no_step_are_counted_whatever_was_finished_before(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=RetryPolicy(attempts=2, first_wait=timedelta(0), jitter=0))
    async def get_stuck(task: TaskContext) -> None:
        await task.step("only", lambda: None)
        raise ConnectionError

    async with harness.running():
        task, _ = await harness.failure_of("get_stuck")
    assert (task.attempt_number, task.failures) == (2, 2)
