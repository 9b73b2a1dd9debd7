"""A task may name what follows it: that begins with its completion, once, and not at all without one."""

import asyncio

import pytest

from raincheck.core.lifecycle import Event, Phase
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import Task, TaskId
from raincheck.engine import SyncTaskContext, TaskContext
from raincheck.errors import InvalidValue, TaskNotFound, ToolError
from tests.support.engine.harness import Bench, Interposed, outcome_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

AT_ONCE = RetryPolicy(attempts=2, jitter=0, first_wait=RetryPolicy().first_wait * 0)


@pytest.fixture
def named(bench: Bench) -> list[TaskId]:
    """The ids that `then` returned, of a tool `next_one` that takes the result."""

    @bench.toolbox.tool
    async def next_one(result: list[int], extra: str = "") -> list[object]:
        return [result, extra]

    return []


async def test_what_follows_begins_with_the_result_and_nobody_sees_one_without_the_other(
    bench: Bench, named: list[TaskId]
) -> None:
    seen: list[str] = []

    @bench.toolbox.tool
    async def first(task: TaskContext) -> tuple[int, int]:
        named.append(TaskId(await task.then("next_one", {"extra": "more"})))
        return (1, 2)

    async def look(task: Task) -> None:
        assert task.phase is Phase.RUNNING
        try:
            await bench.engine.view(named[0])
        except TaskNotFound:
            seen.append("not yet")

    bench.store = Interposed(bench.store, Event.COMPLETE, look)  # type: ignore[assignment] # it stands in for one
    async with bench.working() as engine:
        task = await engine.submit("first")
        ended = await engine.wait(task.id)
        following = await engine.wait(named[0])
    assert seen == ["not yet"]
    assert outcome_of(following) == [[1, 2], "more"]
    assert following.task.created_at <= ended.task.updated_at
    assert following.task.parent_id is None
    assert (await bench.history(task.id))[-1].note == f"spawned {named[0]}"


async def test_a_plain_body_may_name_what_follows_under_another_argument(bench: Bench) -> None:
    named: list[TaskId] = []

    @bench.toolbox.tool
    def first(task: SyncTaskContext) -> int:
        named.append(TaskId(task.then("second", result_as="number")))
        return 7

    @bench.toolbox.tool
    def second(number: int) -> int:
        return number * 2

    async with bench.working() as engine:
        assert await bench.result_of("first") == 7
        assert (await engine.wait(named[0])).outcome == b"14"


async def test_an_attempt_that_fails_starts_nothing_and_the_one_that_completes_starts_it_once(
    bench: Bench, named: list[TaskId]
) -> None:
    @bench.toolbox.tool(retry=AT_ONCE)
    async def first(task: TaskContext) -> list[int]:
        named.append(TaskId(await task.then("next_one")))
        if task.attempt == 1:
            raise ConnectionError
        return [task.attempt]

    async with bench.working() as engine:
        assert await bench.result_of("first") == [2]
        assert outcome_of(await engine.wait(named[1])) == [[2], ""]
        if named[0] != named[1]:
            with pytest.raises(TaskNotFound):
                await engine.view(named[0])


@pytest.mark.parametrize("ending", ["fails", "reports", "is cancelled"])
async def test_nothing_follows_a_task_that_does_not_complete_well(
    bench: Bench, named: list[TaskId], ending: str
) -> None:
    began = asyncio.Event()

    @bench.toolbox.tool(retry_on=())
    async def first(task: TaskContext) -> None:
        named.append(TaskId(await task.then("next_one")))
        began.set()
        if ending == "fails":
            raise ConnectionError
        if ending == "reports":
            raise ToolError("no result")
        await asyncio.Event().wait()

    async with bench.working() as engine:
        task = await engine.submit("first")
        await began.wait()
        if ending == "is cancelled":
            await engine.cancel(task.id)
        await engine.wait(task.id)
        with pytest.raises(TaskNotFound):
            await engine.view(named[0])


async def test_a_second_successor_is_refused_and_the_first_one_stays(bench: Bench, named: list[TaskId]) -> None:
    @bench.toolbox.tool
    async def first(task: TaskContext) -> list[int]:
        named.append(TaskId(await task.then("next_one")))
        with pytest.raises(InvalidValue, match="names what follows it twice"):
            await task.then("next_one")
        return [1]

    async with bench.working() as engine:
        assert await bench.result_of("first") == [1]
        assert outcome_of(await engine.wait(named[0])) == [[1], ""]


@pytest.mark.parametrize(
    ("tool", "arguments", "result_as", "why"),
    [
        ("nobody", {}, "result", "there is no tool 'nobody'"),
        ("next_one", {"result": [1]}, "result", "argument 'result' of 'next_one' is to be the result"),
        ("next_one", {"wrong": 1}, "result", "got an unexpected keyword argument 'wrong'"),
        ("next_one", {}, "wrong", "can't be called like that"),
        ("next_one", {"extra": {1}}, "result", "can't be written as JSON"),
    ],
)
async def test_a_successor_that_can_not_be_called_is_refused_at_once(
    bench: Bench, named: list[TaskId], tool: str, arguments: dict[str, object], result_as: str, why: str
) -> None:
    @bench.toolbox.tool
    async def first(task: TaskContext) -> list[int]:
        with pytest.raises(InvalidValue) as raised:
            await task.then(tool, arguments, result_as=result_as)  # type: ignore[arg-type] # one of them is wrong
        assert why in str(raised.value)
        named.append(TaskId(await task.then("next_one")))
        return [1]

    async with bench.working() as engine:
        assert await bench.result_of("first") == [1], "the bad one left no trace"
        await engine.wait(named[0])


async def test_a_chain_of_tasks_runs_to_its_end(bench: Bench) -> None:
    last: list[TaskId] = []

    @bench.toolbox.tool
    async def link(result: int, task: TaskContext) -> int:
        if result < 5:
            last.append(TaskId(await task.then("link")))
        return result + 1

    async with bench.working() as engine:
        task = await engine.submit("link", {"result": 0})
        await engine.wait(task.id)
        for number in range(5):
            assert (await engine.wait(last[number])).outcome == str(number + 2).encode()
    assert len(last) == 5
