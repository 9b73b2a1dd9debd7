"""An engine starts and stops gracefully, rejects invalid submits, and leaves nothing behind."""

import asyncio
import contextvars
import threading
from datetime import timedelta

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.policies import Limits, OnInterrupt, Quota, Retention, RetryPolicy
from raincheck.core.records import TaskId
from raincheck.core.values import Json
from raincheck.engine import Engine, Settings, SyncTaskContext, TaskContext
from raincheck.engine.worker import supervisor
from raincheck.errors import (
    ConfigurationError,
    IdempotencyConflict,
    InvalidValue,
    NotJson,
    QuotaExceeded,
    TaskFailed,
    TaskNotFound,
    TooLarge,
    ToolError,
    UnknownTool,
)
from tests.support.engine.harness import QUICK, EngineHarness

pytestmark = pytest.mark.anyio

ALICE, BOB = (Owner.token("https://example.com", name) for name in ("alice", "bob"))

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


async def test_a_released_task_resumes_in_another_engine_at_once_and_has_no_failure(
    harness: EngineHarness,
) -> None:
    began = asyncio.Semaphore(0)

    @harness.toolbox.tool(retry=RetryPolicy(attempts=1))
    async def hang(task: TaskContext) -> int:
        began.release()
        if task.attempt == 1:
            await asyncio.Event().wait()
        return task.attempt

    async with harness.running(Settings(grace=0, lease=600)) as engine:
        task = await engine.submit("hang")
        await began.acquire()
    async with harness.running(Settings(lease=600)) as engine:
        assert (await asyncio.wait_for(engine.wait(task.id), 20)).outcome == b"2"
    assert await harness.events(task.id) == ["create", "claim", "release", "claim", "complete"]


async def test_a_task_that_must_not_run_twice_fails_instead_of_being_released(harness: EngineHarness) -> None:
    began = asyncio.Event()

    @harness.toolbox.tool(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    async def pay() -> None:
        began.set()
        await asyncio.Event().wait()

    async with harness.running(Settings(grace=0)) as engine:
        task = await engine.submit("pay")
        await began.wait()
    ended = (await engine.view(task.id)).task
    assert (ended.phase, ended.attempt_number) == (Phase.FAILED, 1)
    assert "must not be run twice" in (ended.status_message or "")


async def test_a_task_in_a_thread_is_released_too(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "UNWIND_TIMEOUT", 0.2)
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    @harness.toolbox.tool(grace=0.05)
    def hang(task: SyncTaskContext) -> None:
        began.set()
        may_end.wait(20)
        try:
            task.progress(1)
        finally:
            ended.set()

    async with harness.running(Settings(grace=0)) as engine:
        task = await engine.submit("hang")
        assert await asyncio.to_thread(began.wait, 10)
    handed_back = (await engine.view(task.id)).task
    assert handed_back.phase is Phase.QUEUED
    may_end.set()
    assert await asyncio.to_thread(ended.wait, 10)
    assert (await engine.view(task.id)).task == handed_back


async def test_a_body_that_ends_within_the_grace_period_is_not_interrupted(harness: EngineHarness) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool
    async def almost_done(task: TaskContext) -> int:
        began.set()
        await may_end.wait()
        await task.step("last", lambda: None)
        return task.attempt

    async with harness.running(Settings(grace=20)) as engine:
        task = await engine.submit("almost_done")
        await began.wait()
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0.05)
        late = await engine.submit("almost_done")
        may_end.set()
        await stopping
    assert (await engine.view(task.id)).outcome == b"1"
    assert (await engine.view(late.id)).task.phase is Phase.QUEUED, "it starts nothing new"


async def test_the_grace_period_can_be_skipped(harness: EngineHarness) -> None:
    began = asyncio.Event()

    @harness.toolbox.tool
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    engine = Engine(harness.store, harness.toolbox, settings=Settings(grace=600))
    engine.skip_grace()
    engine.start()
    task = await engine.submit("hang")
    await began.wait()
    stopping = asyncio.create_task(engine.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    engine.skip_grace()
    await asyncio.wait_for(stopping, 20)
    assert (await engine.view(task.id)).task.phase is Phase.QUEUED


async def test_an_engine_is_started_once_and_can_be_stopped_repeatedly(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    engine = harness.engine = Engine(harness.store, harness.toolbox, settings=QUICK)
    await engine.stop()
    engine.start()
    with pytest.raises(ConfigurationError, match="this engine is already running"):
        engine.start()
    await engine.stop()
    await engine.stop()
    async with engine:
        assert await harness.result_of("quick") == "done"


async def test_an_engine_can_be_started_again_while_other_callers_wait_for_its_stop(
    harness: EngineHarness,
) -> None:
    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    engine = harness.engine = Engine(harness.store, harness.toolbox, settings=QUICK)
    engine.start()

    async def stop_and_start() -> None:
        await engine.stop()
        engine.start()

    await asyncio.gather(stop_and_start(), engine.stop())
    assert await asyncio.wait_for(harness.result_of("quick"), 20) == "done"
    await engine.stop()
    assert not left_behind()


async def test_a_stop_whose_caller_is_cancelled_continues(harness: EngineHarness) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool
    async def almost_done() -> str:
        began.set()
        await may_end.wait()
        return "done"

    engine = Engine(harness.store, harness.toolbox, settings=Settings(grace=20))
    engine.start()
    task = await engine.submit("almost_done")
    await began.wait()
    impatient = asyncio.create_task(engine.stop())
    await asyncio.sleep(0.02)
    impatient.cancel()
    await asyncio.wait([impatient])
    assert impatient.cancelled()
    may_end.set()
    await asyncio.wait_for(engine.stop(), 20)
    assert (await engine.view(task.id)).outcome == b'"done"'
    assert not left_behind()


def left_behind() -> set[str]:
    """Return the names of raincheck's threads and asyncio tasks that are still running."""
    threads = {one.name for one in threading.enumerate() if one.name.startswith("raincheck")}
    # The store's own threads live until the store is closed.
    threads -= {"raincheck-read", "raincheck-write"}
    jobs = {job.get_name() for job in asyncio.all_tasks() if job is not asyncio.current_task()}
    return threads | {job for job in jobs if job.startswith(("raincheck", "attempt on", "body of"))}


async def test_a_stopped_engine_leaves_no_threads_or_asyncio_tasks(harness: EngineHarness) -> None:
    before = {job for job in asyncio.all_tasks() if not job.done()}

    @harness.toolbox.tool
    async def quick(task: TaskContext) -> None:
        await task.progress(1)
        await task.step("one", lambda: 1)

    @harness.toolbox.tool
    def plain(task: SyncTaskContext) -> None:
        task.progress(1)

    @harness.toolbox.tool
    async def ask(task: TaskContext) -> None:
        await task.status("asking")
        await task.elicit("now?", {"type": "object"})

    @harness.toolbox.tool
    async def hang() -> None:
        await asyncio.Event().wait()

    async with harness.running(Settings(grace=0, park_after=0.05)) as engine:
        ended = [await engine.submit(tool) for tool in ("quick", "plain")]
        asking, hanging = await engine.submit("ask"), await engine.submit("hang")
        for task in ended:
            await engine.wait(task.id)
        await harness.reach(asking.id, Phase.PARKED)
        await harness.reach(hanging.id, Phase.RUNNING)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.wait(asking.id), 0.01)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not left_behind()
    # The file watcher of the store runs until the store is closed.
    left = {job for job in asyncio.all_tasks() - before if "stores/sqlite" not in repr(job)}
    assert not left
    assert not vars(vars(engine)["_waiters"])["_waiters"]


async def test_an_invalid_submit_is_rejected_and_creates_nothing(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def report(year: int) -> int:
        return year

    async with harness.running(Settings(limits=Limits(arguments=100, caller=100))) as engine:
        with pytest.raises(UnknownTool, match="there is no tool 'nobody': the tools are report"):
            await engine.submit("nobody")
        with pytest.raises(InvalidValue, match="missing a required argument: 'year'"):
            await engine.submit("report")
        with pytest.raises(InvalidValue, match="unexpected keyword argument 'month'"):
            await engine.submit("report", {"year": 2026, "month": 5})
        with pytest.raises(NotJson, match="the arguments of 'report' can't be written as JSON"):
            await engine.submit("report", {"year": {1, 2}})  # type: ignore[dict-item] # that is the point
        with pytest.raises(TooLarge, match="100 are allowed"):
            await engine.submit("report", {"year": "x" * 100})
        with pytest.raises(TooLarge, match="100 are allowed"):
            await engine.submit("report", {"year": 1}, caller="x" * 100)
        with pytest.raises(NotJson, match="the caller's identity can't be written as JSON"):
            await engine.submit("report", {"year": 1}, caller={1})  # type: ignore[arg-type] # that is the point
        assert await harness.store.prune(now=(await engine.submit("report", {"year": 1})).created_at, limit=10) == ()
    with pytest.raises(InvalidValue, match="a namespace must not be empty"):
        Engine(harness.store, harness.toolbox, namespace="")


async def test_an_idempotency_key_returns_the_same_task_for_the_same_request_only(harness: EngineHarness) -> None:
    runs: list[int] = []

    @harness.toolbox.tool
    async def report(year: int) -> int:
        runs.append(year)
        return year

    async with harness.running() as engine:
        racing = (engine.submit("report", {"year": 2026}, idempotency_key="once") for _ in range(5))
        tasks = await asyncio.gather(*racing)
        assert len({task.id for task in tasks}) == 1
        await engine.wait(tasks[0].id)
        again = await engine.submit("report", {"year": 2026}, idempotency_key="once")
        assert again.phase is Phase.COMPLETED
        with pytest.raises(IdempotencyConflict):
            await engine.submit("report", {"year": 2027}, idempotency_key="once")
        theirs = await engine.submit("report", {"year": 2027}, idempotency_key="once", owner=ALICE)
        await engine.wait(theirs.id, owner=ALICE)
    assert runs == [2026, 2027]


async def test_each_owner_has_a_separate_quota(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def hang() -> None:
        await asyncio.Event().wait()

    async with harness.running(Settings(quota=Quota(live=2), grace=0)) as engine:
        tasks = [await engine.submit("hang", owner=ALICE) for _ in range(2)]
        with pytest.raises(QuotaExceeded, match="too many live tasks"):
            await engine.submit("hang", owner=ALICE)
        await engine.submit("hang", owner=BOB)
        await engine.cancel(tasks[0].id, owner=ALICE)
        await engine.submit("hang", owner=ALICE)


async def test_owners_can_neither_see_nor_touch_each_others_tasks(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> str:
        await task.elicit("now?", {"type": "object"})
        return task.owner.names[1]

    async with harness.running() as engine:
        task = await engine.submit("ask", owner=ALICE)
        await engine.wait(task.id, owner=ALICE, until=lambda task: task.phase is Phase.PARKED)
        before = await engine.view(task.id, owner=ALICE)
        answers: dict[str, Json] = {"elicit-0": {"action": "accept", "content": {}}}
        said: set[str] = set()
        for task_id in (task.id, TaskId("f" * len(task.id))):
            for attempt in (
                engine.view(task_id, owner=BOB),
                engine.wait(task_id, owner=BOB),
                engine.result(task_id, owner=BOB),
                engine.answer(task_id, answers, owner=BOB),
                engine.cancel(task_id, owner=BOB),
                engine.pause(task_id, owner=BOB),
                engine.resume(task_id, owner=BOB),
            ):
                with pytest.raises(TaskNotFound) as raised:
                    await attempt
                said.add(str(raised.value).replace(task_id, "…"))
        assert len(said) == 1
        assert await engine.view(task.id, owner=ALICE) == before
        await engine.answer(task.id, answers, owner=ALICE)
        assert await engine.result(task.id, owner=ALICE) == "alice"


async def test_a_result_is_returned_or_an_error_says_why_there_is_none(
    harness: EngineHarness,
) -> None:
    @harness.toolbox.tool
    async def answer(how: str) -> str:
        if how == "reports":
            raise ToolError("not today")
        return how

    async with harness.running() as engine:
        assert await engine.result((await engine.submit("answer", {"how": "well"})).id) == "well"
        with pytest.raises(TaskFailed, match="reported an error: not today"):
            await engine.result((await engine.submit("answer", {"how": "reports"})).id)


async def test_attempts_do_not_share_context_variables(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def in_the_loop(name: str, task: TaskContext) -> list[object]:
        before = who.get()
        who.set(name)
        await asyncio.sleep(0.01)
        return [before, who.get(), await task.step("who", who.get)]

    @harness.toolbox.tool
    def in_a_thread(name: str, task: SyncTaskContext) -> list[object]:
        before = who.get()
        who.set(name)
        return [before, who.get(), task.step("who", who.get)]

    token = who.set("the engine's maker")
    async with harness.running(Settings(concurrency=2)) as engine:
        who.reset(token)
        for tool in ("in_the_loop", "in_a_thread"):
            who.set("some caller")
            tasks = [await engine.submit(tool, {"name": name}) for name in "abc"]
            for name, task in zip("abc", tasks, strict=True):
                assert await engine.result(task.id) == ["the engine's maker", name, name]


async def test_the_recorded_caller_reaches_every_attempt_and_every_child(
    harness: EngineHarness,
) -> None:
    @harness.toolbox.tool
    async def child(task: TaskContext) -> object:
        return task.caller

    @harness.toolbox.tool(retry=RetryPolicy(first_wait=timedelta(0), jitter=0))
    async def parent(task: TaskContext) -> list[object]:
        one = await task.spawn("child")
        if task.attempt == 1:
            raise ConnectionError
        return [task.caller, await one.result(), task.is_task]

    async with harness.running() as engine:
        task = await engine.submit("parent", caller={"subject": "alice"})
        assert await engine.result(task.id) == [{"subject": "alice"}, {"subject": "alice"}, True]


async def test_a_requested_ttl_is_granted_within_limits(harness: EngineHarness) -> None:
    @harness.toolbox.tool(timeout=60, retention=Retention(keep=timedelta(seconds=10)))
    async def quick() -> None: ...

    async with harness.running(works=False) as engine:
        assert (await engine.submit("quick")).ttl == timedelta(seconds=70)
        assert (await engine.submit("quick", ttl=timedelta(hours=1))).ttl == timedelta(hours=1)
        assert (await engine.submit("quick", ttl=timedelta(seconds=-1))).ttl == timedelta(seconds=70)
        assert (await engine.submit("quick", ttl=timedelta.max)).ttl == timedelta(days=7)
