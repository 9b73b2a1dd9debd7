"""Bodies with branches park, pause and stop correctly, whatever their branches wait for."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from raincheck.core.change import Change
from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.values import Json
from raincheck.engine import Engine, Settings, SyncTaskContext, TaskContext
from raincheck.errors import ToolError
from raincheck.stores.base import Store
from tests.support.engine import isolated_bodies
from tests.support.engine.harness import QUICK, EngineHarness

pytestmark = pytest.mark.anyio

ANYTHING: dict[str, Json] = {"type": "object"}
AT_ONCE = RetryPolicy(attempts=3, jitter=0, first_wait=RetryPolicy().first_wait * 0, max_wait=RetryPolicy().max_wait)

NEVER_TWICE = RetryPolicy(on_interrupt=OnInterrupt.FAIL)


def yes(said: str) -> Json:
    return {"action": "accept", "content": {"said": said}}


async def in_a_group(*branches: Awaitable[object]) -> None:
    async def run(branch: Awaitable[object]) -> None:
        await branch

    async with asyncio.TaskGroup() as group:
        for branch in branches:
            group.create_task(run(branch))


async def gathered(*branches: Awaitable[object]) -> None:
    await asyncio.gather(*branches, return_exceptions=True)


async def waited_for(*branches: Awaitable[object]) -> None:
    await asyncio.wait([asyncio.ensure_future(branch) for branch in branches])


@pytest.mark.parametrize("together", [in_a_group, gathered, waited_for])
async def test_a_body_whose_branches_wait_is_parked_and_has_not_ended(
    harness: EngineHarness, together: Callable[..., Awaitable[None]]
) -> None:
    went_on: list[int] = []

    @harness.toolbox.tool
    async def ask_both(task: TaskContext) -> dict[str, Json]:
        answers: dict[str, Json] = {}

        async def ask(name: str) -> None:
            answers[name] = (await task.elicit("?", ANYTHING, name=name)).content

        await together(ask("a"), ask("b"))
        went_on.append(len(answers))
        return answers

    async with harness.running() as engine:
        task = await engine.submit("ask_both")
        await harness.reach(task.id, Phase.PARKED)
        await engine.answer(task.id, {"b-0": yes("b")})
        await engine.wait(task.id, until=lambda task: task.phase is Phase.PARKED and task.attempt_number == 2)
        await engine.answer(task.id, {"a-0": yes("a")})
        assert await engine.result(task.id) == {"a": {"said": "a"}, "b": {"said": "b"}}
    assert went_on == [2], "what comes after the branches runs when they have done their work, and not before"


async def test_a_body_with_branches_that_is_paused_has_not_ended(harness: EngineHarness) -> None:
    may_go_on = asyncio.Event()
    ran: list[int] = []

    @harness.toolbox.tool
    async def many_steps(task: TaskContext) -> int:
        async def branch(number: int) -> None:
            await task.step(f"first {number}", may_go_on.wait)
            await task.step(f"second {number}", ran.append, number)

        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(branch(number))
        return len(ran)

    async with harness.running() as engine:
        task = await engine.submit("many_steps")
        await harness.reach(task.id, Phase.RUNNING)
        await engine.pause(task.id)
        await engine.wait(task.id, until=lambda task: task.pausing)
        may_go_on.set()
        await harness.reach(task.id, Phase.PAUSED)
        await engine.resume(task.id)
        await engine.wait(task.id)
    assert sorted(ran) == [0, 1, 2, 3, 4]


async def test_branches_of_a_plain_body_that_wait_are_parked_too(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    def ask_both(task: SyncTaskContext) -> list[str]:
        def ask(name: str) -> str:
            return task.elicit("?", ANYTHING, name=name).action

        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(ask, name) for name in "ab"]
            return [one.result() if one.exception() is None else "nothing" for one in asked]

    async with harness.running() as engine:
        task = await engine.submit("ask_both")
        await harness.reach(task.id, Phase.PARKED)
        await engine.answer(task.id, {"a-0": yes("a"), "b-0": yes("b")})
        assert await engine.result(task.id) == ["accept", "accept"]


@pytest.mark.parametrize("stops_by", ["shutdown", "timeout"])
async def test_the_return_value_of_a_body_that_was_stopped_is_not_its_result(
    harness: EngineHarness, stops_by: str
) -> None:
    began = threading.Event()

    @harness.toolbox.tool(attempt_timeout=0.2 if stops_by == "timeout" else None, retry=AT_ONCE)
    def polite(task: SyncTaskContext) -> str:
        if task.attempt > 1:
            return "all of it"
        began.set()
        while not task.cancelled:
            time.sleep(0.005)
        return "part of it"

    async with harness.running(Settings(grace=0.05)) as engine:
        task = await engine.submit("polite")
        await asyncio.to_thread(began.wait, 10)
        if stops_by == "timeout":
            assert await engine.result(task.id) == "all of it"
    async with harness.running() as engine:
        assert await engine.result(task.id) == "all of it"


async def test_sleeps_and_children_of_branches_are_matched_in_any_order(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def child(number: int) -> int:
        return number

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> list[Json]:
        async def branch(name: str, seconds: float, number: int) -> Json:
            # One is slower the first time. When the task resumes, both are replayed at once.
            await task.step(name, asyncio.sleep, 0.05 * number)
            await task.sleep(seconds)
            return await (await task.spawn("child", {"number": number})).result()

        return list(await asyncio.gather(branch("slow", 0.3, 2), branch("fast", 0.4, 1)))

    async with harness.running() as engine:
        task = await engine.submit("parent")
        assert await engine.result(task.id) == [2, 1]
        assert "park" in await harness.events(task.id)


async def test_an_error_for_the_caller_reaches_it_from_a_branch_too(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def grouped(task: TaskContext) -> None:
        async def refuse() -> None:
            raise ToolError("no such year", content={"year": 1})

        async with asyncio.TaskGroup() as group:
            group.create_task(refuse())
            group.create_task(task.step("other", asyncio.sleep, 10))

    async with harness.running() as engine:
        task = await engine.submit("grouped")
        view = await engine.wait(task.id)
    assert (view.task.phase, view.task.is_error, view.outcome) == (Phase.COMPLETED, True, b'{"year":1}')


async def test_a_step_in_a_thread_that_outlives_its_attempt_keeps_its_slot(harness: EngineHarness) -> None:
    may_end, running, most = threading.Event(), [0], [0]

    def slow() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        may_end.wait(10)
        running[0] -= 1

    @harness.toolbox.tool(attempt_timeout=0.1, grace=0.05, concurrency=1, retry=AT_ONCE)
    async def work(task: TaskContext) -> None:
        await task.step("slow", slow)

    async with harness.running() as engine:
        task = await engine.submit("work")
        await engine.wait(task.id, until=lambda task: task.failures == 1)
        # The task may try again, and there is a place for it, but not one for its tool.
        await harness.reach(task.id, Phase.PARKED)
        may_end.set()
        await engine.wait(task.id)
    assert most == [1]


async def test_the_number_of_concurrent_step_threads_is_limited(harness: EngineHarness) -> None:
    lock, running, most = threading.Lock(), [0], [0]

    def step() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.001)
        with lock:
            running[0] -= 1

    @harness.toolbox.tool
    async def work(task: TaskContext) -> int:
        await asyncio.gather(*(task.step(f"step {number}", step) for number in range(200)))
        return most[0]

    async with harness.running():
        assert 1 <= int(str(await harness.result_of("work"))) <= 32


async def test_cancelled_steps_do_not_keep_a_body_in_a_process_from_parking(harness: EngineHarness) -> None:
    harness.toolbox.tool(isolation="process")(isolated_bodies.hurried)
    async with harness.running() as engine:
        task = await engine.submit("hurried")
        await harness.reach(task.id, Phase.PARKED)


async def test_a_report_with_an_unreadable_message_is_dropped(harness: EngineHarness) -> None:
    class Silent:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @harness.toolbox.tool
    async def speechless(task: TaskContext) -> str:
        await task.status(cast("str", Silent()))
        await task.progress(1, 2, cast("str", Silent()))
        return "done"

    async with harness.running():
        assert await harness.result_of("speechless") == "done"


async def test_a_body_that_ignores_refused_calls_does_not_block_the_loop(harness: EngineHarness) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool(grace=0.1)
    async def insists(task: TaskContext) -> None:
        while not may_end.is_set():
            began.set()
            with contextlib.suppress(BaseException):
                await task.progress(1)

    @harness.toolbox.tool
    async def quick() -> str:
        return "still here"

    async with harness.running() as engine:
        task = await engine.submit("insists")
        await began.wait()
        await engine.cancel(task.id)
        for _ in range(10):
            assert await asyncio.wait_for(harness.result_of("quick"), 20) == "still here"
        may_end.set()


async def test_the_cleanup_of_a_parked_body_is_not_interrupted(harness: EngineHarness) -> None:
    tidied: list[int] = []

    @harness.toolbox.tool(grace=4)
    async def tidy(task: TaskContext) -> int:
        try:
            await task.elicit("?", ANYTHING)
        finally:
            await asyncio.sleep(0.4)
            tidied.append(task.attempt)
        return task.attempt

    async with harness.running() as engine:
        task = await engine.submit("tidy")
        await harness.reach(task.id, Phase.PARKED)
        assert tidied == [1]
        await engine.answer(task.id, {"elicit-0": yes("go on")})
        assert await engine.result(task.id) == 2


async def test_a_body_that_has_returned_keeps_its_result_while_its_process_exits(harness: EngineHarness) -> None:
    harness.toolbox.tool(isolation="process", attempt_timeout=2, grace=5, retry=NEVER_TWICE)(
        isolated_bodies.ends_slowly
    )
    async with harness.running() as engine:
        task = await engine.submit("ends_slowly")
        assert await engine.result(task.id) == "expensive"


async def test_a_context_belongs_to_its_loop(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def elsewhere(task: TaskContext) -> None:
        async def report() -> None:
            await task.progress(1)

        await asyncio.to_thread(asyncio.run, report())

    async with harness.running():
        _, error = await harness.failure_of("elsewhere")
    assert "a context belongs to the event loop that its body runs in" in error["message"]


class SlowArtifacts:
    """A store that takes its time with artifacts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Sequence[Change]) -> None:
        if any(change.artifacts for change in changes):
            await asyncio.sleep(10 * QUICK.park_after)
        await self._store.commit(changes)


async def test_a_branch_that_waits_for_the_store_is_not_interrupted_by_a_park(harness: EngineHarness) -> None:
    done = asyncio.Event()

    @harness.toolbox.tool
    async def both(task: TaskContext) -> None:
        async def keep() -> None:
            await asyncio.sleep(QUICK.park_after / 3)
            await task.artifact("x", 1)
            assert task.attempt == 1
            done.set()

        await asyncio.gather(task.elicit("Sure?", {"type": "object"}), keep())

    slow: Any = SlowArtifacts(harness.store)
    async with Engine(slow, harness.toolbox, settings=QUICK) as engine:
        task = await engine.submit("both")
        async with asyncio.timeout(20):
            await done.wait()
        await engine.cancel(task.id)
