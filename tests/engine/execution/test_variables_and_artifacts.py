"""Variables are visible to later attempts, and artifacts to readers of the task."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import Limits, RetryPolicy
from raincheck.core.records import TaskId
from raincheck.core.values import decode
from raincheck.engine import Settings, SyncTaskContext, TaskContext
from raincheck.errors import InvalidValue, NotJson, TooLarge
from tests.support.engine.harness import QUICK, EngineHarness
from tests.support.engine.observed_store import make_clock

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(attempts=3, jitter=0, first_wait=RetryPolicy().first_wait * 0)


async def artifact(harness: EngineHarness, task_id: TaskId, name: str) -> Any:
    found = await harness.store.artifact(task_id, name, Scope.everything(), now=make_clock().now())
    return None if found is None else decode(found.content)


async def test_a_later_attempt_sees_the_variables_of_an_earlier_one(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=AT_ONCE)
    async def count(task: TaskContext) -> dict[str, Any]:
        assert len(task.variables) == (0 if task.attempt == 1 else 1)
        await task.variables.set("seen", [*task.variables.get("seen", []), task.attempt])  # type: ignore[misc] # a list
        await task.variables.set("passing", 1)
        await task.variables.remove("passing")
        assert "passing" not in task.variables
        if task.attempt < 3:
            raise ConnectionError
        return dict(task.variables)

    async with harness.running():
        assert await harness.result_of("count") == {"seen": [1, 2, 3]}


async def test_branches_do_not_overwrite_each_others_variables(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=AT_ONCE)
    async def branch(task: TaskContext) -> dict[str, Any]:
        if task.attempt == 1:
            await asyncio.gather(*(task.variables.set(name, name) for name in "abc"), task.variables.remove("c"))
            raise ConnectionError
        return dict(task.variables)

    async with harness.running():
        assert await harness.result_of("branch") == {"a": "a", "b": "b"}


async def test_threads_of_a_plain_body_do_not_overwrite_each_others_variables(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=AT_ONCE)
    def branch(task: SyncTaskContext) -> dict[str, Any]:
        if task.attempt == 1:
            with ThreadPoolExecutor() as threads:
                assert list(threads.map(task.variables.set, "abc", "abc")) == [None] * 3
            raise ConnectionError
        return dict(task.variables)

    async with harness.running():
        assert await harness.result_of("branch") == {"a": "a", "b": "b", "c": "c"}


async def test_a_plain_body_has_variables_too(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=AT_ONCE)
    def count(task: SyncTaskContext) -> list[Any]:
        if task.attempt == 1:
            task.variables.set("kept", 1)
            task.variables.set("removed", 1)
            task.variables.remove("removed")
            task.variables.remove("never there")
            raise ConnectionError
        return [task.variables["kept"], len(task.variables), list(task.variables)]

    async with harness.running():
        assert await harness.result_of("count") == [1, 1, ["kept"]]


async def test_a_rejected_variable_is_not_visible_and_the_others_stay(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def keep(task: TaskContext) -> dict[str, Any]:
        await task.variables.set("small", 1)
        with pytest.raises(TooLarge, match=r"variables has .* bytes, and 50 are allowed"):
            await task.variables.set("large", "x" * 100)
        with pytest.raises(NotJson, match="variables can't be written as JSON"):
            await task.variables.set("odd", {1, 2})  # type: ignore[arg-type] # that is the point
        return dict(task.variables)

    async with harness.running(Settings(limits=Limits(variables=50))):
        assert await harness.result_of("keep") == {"small": 1}


async def test_an_artifact_can_be_read_while_the_task_works_and_the_same_name_replaces_it(
    harness: EngineHarness,
) -> None:
    may_go_on = asyncio.Semaphore(0)

    @harness.toolbox.tool
    async def draw(task: TaskContext) -> None:
        for number in (1, 2):
            await task.artifact("sketch", {"version": number})
            await task.status(f"drew {number}")
            await may_go_on.acquire()

    async with harness.running() as engine:
        task = await engine.submit("draw")
        for number in (1, 2):
            await engine.wait(task.id, until=lambda task: task.status_message == f"drew {number}")  # noqa: B023 - awaited here
            assert await artifact(harness, task.id, "sketch") == {"version": number}
            may_go_on.release()
        ended = (await engine.wait(task.id)).task
        assert ended.phase is Phase.COMPLETED
        assert await artifact(harness, task.id, "sketch") == {"version": 2}
        assert await artifact(harness, task.id, "another") is None


async def test_artifacts_are_counted_over_all_attempts_and_a_replaced_one_counts_once(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=AT_ONCE)
    def draw(task: SyncTaskContext) -> str:
        task.artifact("first", task.attempt)
        if task.attempt == 1:
            raise ConnectionError
        task.artifact("second", 2)
        task.artifact("second", 3)
        try:
            task.artifact("third", 3)
        except TooLarge as error:
            return str(error)
        return "there was room"

    async with harness.running(Settings(limits=Limits(artifacts=2))):
        said = await harness.result_of("draw")
    assert "has 3 artifacts, and 2 are allowed" in str(said)


async def test_an_artifact_that_can_not_be_stored_is_rejected_and_the_body_can_continue(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def draw(task: TaskContext) -> str:
        with pytest.raises(TooLarge, match="artifact 'large' has 102 bytes, and 50 are allowed"):
            await task.artifact("large", "x" * 100)
        with pytest.raises(NotJson, match="artifact 'odd' can't be written as JSON"):
            await task.artifact("odd", object())  # type: ignore[arg-type] # that is the point
        with pytest.raises(InvalidValue, match="an artifact's name must not be empty"):
            await task.artifact("", 1)
        return "done"

    async with harness.running(Settings(limits=Limits(artifact=50))):
        assert await harness.result_of("draw") == "done"


async def test_a_task_has_no_more_steps_than_allowed(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def climb(task: TaskContext) -> None:
        for _ in range(4):
            await task.step("up", lambda: None)

    async with harness.running(Settings(limits=Limits(steps=3))):
        task, error = await harness.failure_of("climb")
    assert "has 4 steps, and 3 are allowed" in error["message"]
    assert task.attempt_number == 1, "trying again would not help"


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 3_650 * 86_400 + 1])
async def test_an_invalid_sleep_is_rejected(harness: EngineHarness, seconds: float) -> None:
    @harness.toolbox.tool
    async def nap(task: TaskContext) -> None:
        await task.sleep(seconds)

    async with harness.running(QUICK):
        _, error = await harness.failure_of("nap")
    assert "a task can sleep from 0 to 315360000 seconds" in error["message"]


async def test_a_running_step_is_not_interrupted_by_an_immediate_park(harness: EngineHarness) -> None:
    may_end, ran = asyncio.Event(), list[int]()

    @harness.toolbox.tool
    async def branches(task: TaskContext) -> int:
        async def work() -> None:
            ran.append(task.attempt)
            await may_end.wait()

        await asyncio.gather(task.step("work", work), task.elicit("now?", {"type": "object"}))
        return task.attempt

    async with harness.running(Settings(park_after=0)) as engine:
        task = await engine.submit("branches")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await asyncio.sleep(0.2)
        assert (await engine.view(task.id)).task.phase is Phase.RUNNING
        may_end.set()
        await engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
        await engine.wait(task.id)
    assert ran == [1]
