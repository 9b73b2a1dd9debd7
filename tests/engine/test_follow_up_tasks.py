"""A successor is created with the completion of its task, exactly once, and only then."""

import asyncio

import pytest

from raincheck.core.lifecycle import Event, Phase
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import Task, TaskId
from raincheck.engine import SyncTaskContext, TaskContext
from raincheck.errors import InvalidValue, TaskNotFound, ToolError
from tests.support.engine.harness import CommitHookStore, EngineHarness, outcome_of

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(attempts=2, jitter=0, first_wait=RetryPolicy().first_wait * 0)


@pytest.fixture
def named(harness: EngineHarness) -> list[TaskId]:
    """The ids that `then` returned, of a tool `next_one` that takes the result."""

    @harness.toolbox.tool
    async def next_one(result: list[int], extra: str = "") -> list[object]:
        return [result, extra]

    return []


async def test_a_successor_gets_the_result_and_is_created_with_the_completion(
    harness: EngineHarness, named: list[TaskId]
) -> None:
    seen: list[str] = []

    @harness.toolbox.tool
    async def first(task: TaskContext) -> tuple[int, int]:
        named.append(TaskId(await task.then("next_one", {"extra": "more"})))
        return (1, 2)

    async def look(task: Task) -> None:
        assert task.phase is Phase.RUNNING
        try:
            await harness.engine.view(named[0])
        except TaskNotFound:
            seen.append("not yet")

    harness.store = CommitHookStore(harness.store, Event.COMPLETE, look)  # type: ignore[assignment] # it stands in for one
    async with harness.running() as engine:
        task = await engine.submit("first")
        ended = await engine.wait(task.id)
        following = await engine.wait(named[0])
    assert seen == ["not yet"]
    assert outcome_of(following) == [[1, 2], "more"]
    assert following.task.created_at <= ended.task.updated_at
    assert following.task.parent_id is None
    assert (await harness.history(task.id))[-1].note == f"spawned {named[0]}"


async def test_a_plain_body_can_pass_its_result_under_another_argument_name(harness: EngineHarness) -> None:
    named: list[TaskId] = []

    @harness.toolbox.tool
    def first(task: SyncTaskContext) -> int:
        named.append(TaskId(task.then("second", result_as="number")))
        return 7

    @harness.toolbox.tool
    def second(number: int) -> int:
        return number * 2

    async with harness.running() as engine:
        assert await harness.result_of("first") == 7
        assert (await engine.wait(named[0])).outcome == b"14"


async def test_an_attempt_that_fails_starts_nothing_and_the_one_that_completes_starts_it_once(
    harness: EngineHarness, named: list[TaskId]
) -> None:
    @harness.toolbox.tool(retry=AT_ONCE)
    async def first(task: TaskContext) -> list[int]:
        named.append(TaskId(await task.then("next_one")))
        if task.attempt == 1:
            raise ConnectionError
        return [task.attempt]

    async with harness.running() as engine:
        assert await harness.result_of("first") == [2]
        assert outcome_of(await engine.wait(named[1])) == [[2], ""]
        if named[0] != named[1]:
            with pytest.raises(TaskNotFound):
                await engine.view(named[0])


@pytest.mark.parametrize("ending", ["fails", "reports", "is cancelled"])
async def test_a_task_that_does_not_complete_has_no_successor(
    harness: EngineHarness, named: list[TaskId], ending: str
) -> None:
    began = asyncio.Event()

    @harness.toolbox.tool(retry_on=())
    async def first(task: TaskContext) -> None:
        named.append(TaskId(await task.then("next_one")))
        began.set()
        if ending == "fails":
            raise ConnectionError
        if ending == "reports":
            raise ToolError("no result")
        await asyncio.Event().wait()

    async with harness.running() as engine:
        task = await engine.submit("first")
        await began.wait()
        if ending == "is cancelled":
            await engine.cancel(task.id)
        await engine.wait(task.id)
        with pytest.raises(TaskNotFound):
            await engine.view(named[0])


async def test_a_second_successor_is_refused_and_the_first_one_stays(
    harness: EngineHarness, named: list[TaskId]
) -> None:
    @harness.toolbox.tool
    async def first(task: TaskContext) -> list[int]:
        named.append(TaskId(await task.then("next_one")))
        with pytest.raises(InvalidValue, match="already has a successor"):
            await task.then("next_one")
        return [1]

    async with harness.running() as engine:
        assert await harness.result_of("first") == [1]
        assert outcome_of(await engine.wait(named[0])) == [[1], ""]


@pytest.mark.parametrize(
    ("tool", "arguments", "result_as", "why"),
    [
        ("nobody", {}, "result", "there is no tool 'nobody'"),
        ("next_one", {"result": [1]}, "result", "argument 'result' of 'next_one' is reserved for the result"),
        ("next_one", {"wrong": 1}, "result", "got an unexpected keyword argument 'wrong'"),
        ("next_one", {}, "wrong", "can't be called like that"),
        ("next_one", {"extra": {1}}, "result", "can't be written as JSON"),
    ],
)
async def test_a_successor_with_invalid_arguments_is_rejected_at_once(
    harness: EngineHarness, named: list[TaskId], tool: str, arguments: dict[str, object], result_as: str, why: str
) -> None:
    @harness.toolbox.tool
    async def first(task: TaskContext) -> list[int]:
        with pytest.raises(InvalidValue) as raised:
            await task.then(tool, arguments, result_as=result_as)  # type: ignore[arg-type] # one of them is wrong
        assert why in str(raised.value)
        named.append(TaskId(await task.then("next_one")))
        return [1]

    async with harness.running() as engine:
        assert await harness.result_of("first") == [1], "the bad one left no trace"
        await engine.wait(named[0])


async def test_a_chain_of_tasks_runs_to_its_end(harness: EngineHarness) -> None:
    last: list[TaskId] = []

    @harness.toolbox.tool
    async def link(result: int, task: TaskContext) -> int:
        if result < 5:
            last.append(TaskId(await task.then("link")))
        return result + 1

    async with harness.running() as engine:
        task = await engine.submit("link", {"result": 0})
        await engine.wait(task.id)
        for number in range(5):
            assert (await engine.wait(last[number])).outcome == str(number + 2).encode()
    assert len(last) == 5
