"""Progress reports are written at intervals, and the last one is never lost."""

import asyncio
import threading

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.records import Progress
from raincheck.engine import Settings, SyncTaskContext, TaskContext
from tests.support.engine.harness import QUICK, EngineHarness
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio

RARELY = Settings(progress_interval=600, park_after=0.05)


async def test_ten_thousand_reports_cost_few_writes_and_the_last_one_is_stored(harness: EngineHarness) -> None:
    observed = ObservedStore(harness.store)
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def count(task: TaskContext) -> None:
        for number in range(1, 10_001):
            await task.progress(number, 10_000, f"number {number}")

    async with harness.running(Settings(progress_interval=0.25)) as engine:
        task = await engine.submit("count")
        ended = (await engine.wait(task.id)).task
        assert ended.progress == Progress(10_000, 10_000)
        notes = [entry.note for entry in await harness.history(task.id) if entry.event == "note"]
        assert notes[-1] == "number 10000"
        assert observed.calls["commit"] < 50


async def test_the_first_report_is_written_at_once_and_later_ones_at_intervals(harness: EngineHarness) -> None:
    clock, may_go_on = make_clock(), asyncio.Event()

    @harness.toolbox.tool
    async def count(task: TaskContext) -> None:
        await task.progress(1, 3)
        await may_go_on.wait()
        may_go_on.clear()
        await task.progress(2, 3)
        await may_go_on.wait()

    async with harness.running(Settings(progress_interval=10), clock=clock) as engine:
        task = await engine.submit("count")
        await engine.wait(task.id, until=lambda task: task.progress == Progress(1, 3))
        # A reader may see the report before its writer knows that it was written, and starts the interval.
        await clock.asleep(10)
        may_go_on.set()
        clock.advance(9)
        while may_go_on.is_set():  # noqa: ASYNC110 - until the body took it
            await asyncio.sleep(0)
        assert (await engine.view(task.id)).task.progress == Progress(1, 3)
        clock.advance(1)
        await engine.wait(task.id, until=lambda task: task.progress == Progress(2, 3))
        may_go_on.set()
        await engine.wait(task.id)


async def test_progress_is_written_with_an_input_request(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def asking(task: TaskContext) -> None:
        await task.progress(1, 3, "first")
        await task.progress(2, 3, "second")
        await task.elicit("go on?", {"type": "object"})

    async with harness.running(RARELY) as engine:
        task = await engine.submit("asking")
        view = await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        assert (view.task.progress, view.task.status_message) == (Progress(2, 3), "second")


async def test_a_plain_body_reports_too(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    def count(task: SyncTaskContext) -> None:
        for number in range(1, 101):
            task.progress(number, 100)
        task.status("almost")

    async with harness.running(RARELY) as engine:
        task = await engine.submit("count")
        assert (await engine.wait(task.id)).task.progress == Progress(100, 100)
        assert [entry.note for entry in await harness.history(task.id) if entry.event == "note"][-1] == "almost"


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -1, "half of it", None, 10**400])
async def test_invalid_progress_is_dropped_with_one_warning_and_the_body_continues(
    harness: EngineHarness, odd: float, caplog: pytest.LogCaptureFixture
) -> None:
    @harness.toolbox.tool
    async def odd_reports(task: TaskContext) -> str:
        await task.progress(1, 4)
        for _ in range(5):
            await task.progress(odd, 4)
            await task.progress(2, odd)
        return "done"

    async with harness.running(RARELY) as engine:
        task = await engine.submit("odd_reports")
        view = await engine.wait(task.id)
    assert view.outcome == b'"done"'
    # Without a total, or with one that is no number: what was reported of it is either whole or left out.
    assert view.task.progress == (Progress(2, None) if odd is None else Progress(1, 4))
    warnings = [one for one in caplog.records if "dropped an invalid progress report" in one.getMessage()]
    assert len(warnings) == (0 if odd is None else 1)


async def test_progress_never_goes_backwards(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def back_and_forth(task: TaskContext) -> None:
        await task.progress(1, 10)
        for done in (7, 9, 3, 5):
            await task.progress(done, 10)

    async with harness.running(RARELY) as engine:
        task = await engine.submit("back_and_forth")
        assert (await engine.wait(task.id)).task.progress == Progress(9, 10)


async def test_the_status_message_is_cleared_on_completion(harness: EngineHarness) -> None:
    may_end = asyncio.Event()

    @harness.toolbox.tool
    async def crunch(task: TaskContext) -> None:
        await task.status("crunching")
        await may_end.wait()
        await task.status("crunching the last bit")

    async with harness.running() as engine:
        task = await engine.submit("crunch")
        await engine.wait(task.id, until=lambda task: task.status_message == "crunching")
        may_end.set()
        ended = (await engine.wait(task.id)).task
        assert (ended.phase, ended.status_message) == (Phase.COMPLETED, None)


async def test_a_report_after_the_end_is_rejected_and_changes_nothing(harness: EngineHarness) -> None:
    kept: list[TaskContext] = []
    may_end = asyncio.Event()

    @harness.toolbox.tool
    async def keep(task: TaskContext) -> None:
        kept.append(task)
        await may_end.wait()

    async with harness.running() as engine:
        task = await engine.submit("keep")
        await harness.reach(task.id, Phase.RUNNING)
        may_end.set()
        before = await engine.wait(task.id)
        while not kept[0].cancelled:  # noqa: ASYNC110 - the attempt runs for a moment after its end is written
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await kept[0].progress(99, 100, "one more thing")
        assert await engine.view(task.id) == before


async def test_progress_just_before_a_park_a_release_or_a_failure_is_stored(harness: EngineHarness) -> None:
    began = asyncio.Event()

    @harness.toolbox.tool
    async def ask(task: TaskContext) -> None:
        await task.progress(1, 3)
        await task.progress(2, 3)
        await task.elicit("now?", {"type": "object"})

    @harness.toolbox.tool(retry_on=())
    async def fail(task: TaskContext) -> None:
        await task.progress(1, 3)
        await task.progress(2, 3)
        raise ConnectionError

    @harness.toolbox.tool
    async def go_on(task: TaskContext) -> None:
        await task.progress(1, 3)
        await task.progress(2, 3)
        began.set()
        await asyncio.Event().wait()

    async with harness.running(Settings(progress_interval=600, park_after=0.05, grace=0)) as engine:
        tasks = [await engine.submit(tool) for tool in ("ask", "fail", "go_on")]
        await harness.reach(tasks[0].id, Phase.PARKED)
        await engine.wait(tasks[1].id)
        await began.wait()
    for task in tasks:
        assert (await harness.engine.view(task.id)).task.progress == Progress(2, 3), task.tool


async def test_a_report_that_can_not_be_written_at_once_does_not_stop_the_body(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    observed, written = ObservedStore(harness.store), asyncio.Event()
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def count(task: TaskContext) -> str:
        observed.fail("commit", times=7)
        await task.progress(1, 2)
        while "a write failed, will try again" not in caplog.text:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)
        written.set()
        return "done"

    clock = make_clock()
    async with harness.running(Settings(progress_interval=0.02), clock=clock) as engine:
        task = await engine.submit("count")
        async with asyncio.timeout(20):
            while not written.is_set() or not (await engine.view(task.id)).task.is_terminal:
                clock.advance(0.5)
                await asyncio.sleep(0.005)
        ended = (await engine.wait(task.id)).task
        assert (ended.phase, ended.progress) == (Phase.COMPLETED, Progress(1, 2))


async def test_a_thread_that_reports_constantly_does_not_block_other_tasks(harness: EngineHarness) -> None:
    enough = threading.Event()

    @harness.toolbox.tool
    def chatter(task: SyncTaskContext) -> None:
        while not enough.is_set():
            task.progress(1)

    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    async with harness.running(QUICK):
        chatting = await harness.engine.submit("chatter")
        await harness.reach(chatting.id, Phase.RUNNING)
        assert await asyncio.wait_for(harness.result_of("quick"), 20) == "done"
        enough.set()
        await harness.engine.wait(chatting.id)
