"""Code of a body that outlives its attempt can write nothing and harms no other task."""

import asyncio
import threading

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.records import TaskId
from raincheck.engine import Settings, SyncTaskContext, TaskContext
from raincheck.engine.worker import supervisor
from tests.support.engine.harness import QUICK, EngineHarness

pytestmark = pytest.mark.anyio


async def test_a_coroutine_that_ignores_its_cancellation_keeps_only_its_slot(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    began, may_end, ignoring = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool(grace=0.05, concurrency=1)
    async def deaf() -> str:
        began.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                ignoring.set()
        return "heard nothing"

    @harness.toolbox.tool
    async def good() -> str:
        return "still here"

    async with harness.running() as engine:
        task, waits = await engine.submit("deaf"), await engine.submit("deaf")
        await began.wait()
        await engine.cancel(task.id)
        try:
            async with asyncio.timeout(20):
                await ignoring.wait()
                assert await harness.result_of("good") == "still here"
                while "but code of its body is still running and holds its slot (tool deaf)" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                    await asyncio.sleep(0.01)
            assert (await engine.view(waits.id)).task.phase is Phase.QUEUED
        finally:
            may_end.set()
        assert (await engine.wait(waits.id)).outcome == b'"heard nothing"'
        view = await engine.view(task.id)
        assert (view.task.phase, view.outcome) == (Phase.CANCELLED, None)


async def test_a_coroutine_that_outlives_its_engine_ends_without_errors(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "UNWIND_TIMEOUT", 0.2)
    began, may_end, ended, complaints = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))

    @harness.toolbox.tool(grace=0.05)
    async def deaf() -> None:
        began.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    async with harness.running(Settings(grace=0)) as engine:
        task = await engine.submit("deaf")
        await began.wait()
    try:
        assert (await harness.engine.view(task.id)).task.phase is Phase.QUEUED, "it was handed back"
        (body,) = (job for job in asyncio.all_tasks() if job.get_name() == f"body of {task.id}")
    finally:
        may_end.set()
    await ended.wait()
    await asyncio.wait([body])
    assert body.exception() is None
    assert not complaints


async def test_a_thread_that_a_plain_body_left_behind_can_write_nothing(harness: EngineHarness) -> None:
    may_write, said = threading.Event(), list[str]()
    threads: list[threading.Thread] = []

    @harness.toolbox.tool
    def leaky(task: SyncTaskContext) -> str:
        def linger() -> None:
            may_write.wait(20)
            for write in (
                lambda: task.progress(1, 2, "still here"),
                lambda: task.step("late", said.append, "the step ran"),
                lambda: task.variables.set("late", 1),
            ):
                try:
                    write()
                except BaseException as error:  # noqa: BLE001 - it is looked at below
                    said.append(type(error).__name__)

        threads.append(threading.Thread(target=linger, daemon=True))
        threads[0].start()
        return "done"

    async with harness.running() as engine:
        task = await engine.submit("leaky")
        before = await engine.wait(task.id)
        may_write.set()
        await asyncio.to_thread(threads[0].join, 10)
        assert said == ["BodyStopped"] * 3
        assert await engine.view(task.id) == before
        assert before.outcome == b'"done"'


async def test_a_branch_that_a_coroutine_left_behind_is_stopped_at_its_next_call(harness: EngineHarness) -> None:
    may_go_on, said = asyncio.Event(), list[str]()
    left: list[asyncio.Task[None]] = []

    @harness.toolbox.tool
    async def leaky(task: TaskContext) -> str:
        async def linger() -> None:
            await may_go_on.wait()
            try:
                await task.progress(1, 2, "still here")
                said.append("reported")
            finally:
                said.append("stopped" if task.cancelled else "goes on")

        left.append(asyncio.create_task(linger()))
        return "done"

    async with harness.running() as engine:
        task = await engine.submit("leaky")
        before = await engine.wait(task.id)
        may_go_on.set()
        await asyncio.wait(left, timeout=300)
        assert left[0].cancelled()
        assert said == ["stopped"]
        assert await engine.view(task.id) == before


async def test_a_branch_that_waits_when_the_body_ends_is_stopped_then(harness: EngineHarness) -> None:
    left: list[asyncio.Task[None]] = []

    @harness.toolbox.tool
    async def leaky(task: TaskContext) -> str:
        left.append(asyncio.create_task(task.sleep(3_600)))
        await asyncio.sleep(0)
        return "done"

    async with harness.running(Settings(park_after=600)):
        assert await harness.result_of("leaky") == "done"
        _, waiting = await asyncio.wait(left, timeout=300)
        assert not waiting


async def test_a_context_rejects_every_call_after_the_end(harness: EngineHarness) -> None:
    kept: list[TaskContext] = []

    @harness.toolbox.tool
    async def keep(task: TaskContext) -> None:
        kept.append(task)

    async with harness.running(QUICK):
        await harness.result_of("keep")
        context = kept[0]
        while not context.cancelled:  # noqa: ASYNC110 - the attempt runs for a moment after its end is written
            await asyncio.sleep(0)
        for late in (context.status("late"), context.step("late", lambda: 1), context.artifact("late", 1)):
            with pytest.raises(asyncio.CancelledError):
                await late
        assert await harness.events(TaskId(context.id)) == ["create", "claim", "complete"]
