"""A finished step is not run again: its record is matched by name, number and arguments."""

import asyncio

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.policies import RetryPolicy
from raincheck.engine import SyncTaskContext, TaskContext, Toolbox
from raincheck.errors import ConfigurationError
from tests.support.engine.harness import EngineHarness

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(attempts=3, jitter=0, first_wait=RetryPolicy().first_wait * 0, max_wait=RetryPolicy().max_wait)


async def test_a_finished_step_is_not_run_by_a_later_attempt(harness: EngineHarness) -> None:
    ran: list[str] = []

    @harness.toolbox.tool(retry=AT_ONCE)
    async def two_steps(task: TaskContext) -> list[int]:
        first = await task.step("first", ran.append, "first") or 1
        if task.attempt == 1:
            raise ConnectionError("gone")
        return [first, await task.step("second", lambda: 2)]

    async with harness.running():
        assert await harness.result_of("two_steps") == [1, 2]
    assert ran == ["first"]


async def test_a_plain_body_has_steps_too(harness: EngineHarness) -> None:
    ran: list[int] = []

    @harness.toolbox.tool(retry=AT_ONCE)
    def in_a_thread(task: SyncTaskContext) -> int:
        for number in range(3):
            task.step("number", ran.append, number)
        if task.attempt == 1:
            raise ConnectionError("gone")
        return len(ran)

    async with harness.running():
        assert await harness.result_of("in_a_thread") == 3


async def test_steps_and_questions_can_run_concurrently(harness: EngineHarness) -> None:
    ran: list[str] = []

    @harness.toolbox.tool
    async def branches(task: TaskContext) -> list[object]:
        async def branch(name: str) -> object:
            await task.step(name, ran.append, name)
            reply = await task.elicit(f"{name}?", {"type": "object"}, name=f"ask {name}")
            return reply.content

        return list(await asyncio.gather(*(branch(name) for name in "abc")))

    async with harness.running() as engine:
        task = await engine.submit("branches")
        await harness.reach(task.id, Phase.PARKED)
        for name in "cab":
            await engine.answer(task.id, {f"ask {name}-0": {"action": "accept", "content": {"said": name}}})
        view = await engine.wait(task.id)
    assert view.outcome == b'[{"said":"a"},{"said":"b"},{"said":"c"}]'
    assert sorted(ran) == ["a", "b", "c"]


async def test_a_step_returns_its_result_as_json_the_first_time_too(harness: EngineHarness) -> None:
    seen: list[object] = []

    @harness.toolbox.tool(retry=AT_ONCE)
    async def pairs(task: TaskContext) -> None:
        seen.append(await task.step("pair", lambda: (1, {2: "two"})))
        if task.attempt == 1:
            raise ConnectionError("gone")

    async with harness.running():
        await harness.result_of("pairs")
    assert seen == [[1, {"2": "two"}]] * 2


async def test_a_step_with_other_arguments_is_rejected_and_both_are_named(
    harness: EngineHarness,
) -> None:
    @harness.toolbox.tool(retry=AT_ONCE)
    async def unsteady(task: TaskContext) -> None:
        await task.step("load", str, 2025 + task.attempt)
        raise ConnectionError("gone")

    async with harness.running():
        _, error = await harness.failure_of("unsteady")
    assert "step 'load' on record from attempt 1 as step:" in error["message"]
    assert "attempt 2 (tool 'unsteady' in version '1') requested it as step:" in error["message"]


async def test_a_newer_version_that_lacks_a_recorded_step_is_rejected_and_both_are_named(
    harness: EngineHarness,
) -> None:
    @harness.toolbox.tool
    async def report(task: TaskContext) -> str:
        await task.step("load", lambda: 1)
        await task.elicit("go on?", {"type": "object"})
        return "old"

    async with harness.running() as engine:
        task = await engine.submit("report")
        await harness.reach(task.id, Phase.PARKED)

    harness.toolbox = Toolbox()

    @harness.toolbox.tool(name="report", version="2", continues=("1",))
    async def newer(task: TaskContext) -> str:
        await task.elicit("go on?", {"type": "object"})
        return "new"

    async with harness.running() as engine:
        await engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
        view = await engine.wait(task.id)
    assert view.task.phase is Phase.FAILED
    message = view.task.status_message or ""
    assert "has step 'load' (step:" in message
    assert "by attempt 1) on record" in message
    assert "(tool 'report' in version '2', started under version '1') ended without reaching it" in message


async def test_a_newer_version_with_the_same_steps_continues(harness: EngineHarness) -> None:
    ran: list[str] = []

    @harness.toolbox.tool
    async def report(task: TaskContext) -> str:
        await task.step("load", ran.append, "old load")
        await task.elicit("go on?", {"type": "object"})
        return "old"

    async with harness.running() as engine:
        task = await engine.submit("report")
        await harness.reach(task.id, Phase.PARKED)

    harness.toolbox = Toolbox()

    @harness.toolbox.tool(name="report", version="2", continues=("1",))
    async def newer(task: TaskContext) -> str:
        await task.step("load", ran.append, "old load")
        await task.elicit("go on?", {"type": "object"})
        return await task.step("more", lambda: "new")

    async with harness.running() as engine:
        await engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
        assert (await engine.wait(task.id)).outcome == b'"new"'
    assert ran == ["old load"]


async def test_a_worker_leaves_tasks_alone_whose_version_it_does_not_have(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def report() -> str:
        return "old"

    async with harness.running(works=False) as engine:
        task = await engine.submit("report")

    harness.toolbox = Toolbox()

    @harness.toolbox.tool(name="report", version="2")
    async def newer() -> str:
        return "new"

    async with harness.running() as engine:
        assert await harness.result_of("report") == "new"
        assert (await engine.view(task.id)).task.phase is Phase.QUEUED


async def test_a_failed_step_is_not_recorded_and_can_be_retried(harness: EngineHarness) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(len(tries))
        if len(tries) == 1:
            raise ConnectionError("gone")
        return len(tries)

    @harness.toolbox.tool
    async def persistent(task: TaskContext) -> int:
        try:
            return await task.step("flaky", flaky)
        except ConnectionError:
            return await task.step("flaky", flaky)

    async with harness.running():
        assert await harness.result_of("persistent") == 2


async def test_a_step_whose_result_is_not_json_says_so(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def wrong(task: TaskContext) -> None:
        await task.step("set", lambda: {1, 2})

    async with harness.running():
        task, error = await harness.failure_of("wrong")
    assert "the result of step 'set' can't be written as JSON" in error["message"]
    assert task.attempt_number == 1, "trying again would not help"


async def test_two_tools_of_one_name_and_version_are_rejected(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def report() -> None: ...

    with pytest.raises(ConfigurationError, match="tool 'report' already exists in version '1'"):
        harness.toolbox.tool(report)
