"""Children are started once, limited, cancelled with their parent, and stored while it lives."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.policies import Limits, Quota, Retention, RetryPolicy
from raincheck.core.records import TaskId
from raincheck.core.values import Json
from raincheck.engine import Child, Settings, TaskContext
from raincheck.errors import InvalidValue, QuotaExceeded, TooLarge, UnknownTool
from raincheck.stores.requests import TaskQuery
from raincheck.testing import FakeClock
from tests.support.engine.harness import QUICK, EngineHarness, outcome_of
from tests.support.engine.observed_store import make_clock

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(attempts=3, jitter=0, first_wait=RetryPolicy().first_wait * 0)
ANYTHING = {"type": "object"}
YES: Json = {"action": "accept", "content": {}}


def within(**limits: Any) -> Settings:
    return Settings(park_after=0.05, lease=1, limits=Limits(**limits))


async def children_of(harness: EngineHarness, task_id: TaskId, clock: FakeClock | None = None) -> list[TaskId]:
    now = (clock or make_clock()).now()
    page = await harness.store.list_tasks(TaskQuery(Scope.everything(), parent_id=task_id), now=now)
    return [task.id for task in page.tasks]


async def test_a_family_has_no_more_generations_than_allowed(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def generation(number: int, task: TaskContext) -> int:
        try:
            child = await task.spawn("generation", {"number": number + 1})
        except TooLarge:
            return number
        return int(str(await child.result()))

    async with harness.running(within(depth=3)):
        assert await harness.result_of("generation", number=0) == 3


async def test_the_limit_of_children_counts_all_attempts(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def child() -> None: ...

    @harness.toolbox.tool(retry=AT_ONCE)
    async def parent(task: TaskContext) -> str:
        for _ in range(3):
            await task.spawn("child")
        if task.attempt == 1:
            raise ConnectionError
        with pytest.raises(TooLarge, match="4 children, and 3 are allowed"):
            await task.spawn("child")
        return "enough"

    async with harness.running(within(children=3)) as engine:
        task = await engine.submit("parent")
        assert (await engine.wait(task.id)).outcome == b'"enough"'
        assert len(await children_of(harness, task.id)) == 3


async def test_concurrent_branches_can_not_exceed_a_limit_together(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def child() -> None: ...

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> list[int]:
        def refused(results: list[Any]) -> int:
            assert all(isinstance(one, TooLarge) for one in results if isinstance(one, BaseException))
            return sum(isinstance(one, TooLarge) for one in results)

        spawned = await asyncio.gather(*(task.spawn("child") for _ in range(6)), return_exceptions=True)
        kept = (task.artifact(str(number), number) for number in range(6))
        artifacts = await asyncio.gather(*kept, return_exceptions=True)
        steps = await asyncio.gather(*(task.step(str(n), lambda: 1) for n in range(6)), return_exceptions=True)
        return [refused(spawned), refused(artifacts), refused(steps)]

    async with harness.running(within(children=2, artifacts=3, steps=6)) as engine:
        task = await engine.submit("parent")
        # Children are steps too: two of the six.
        assert (await engine.wait(task.id)).outcome == b"[4,3,2]"
        assert len(await children_of(harness, task.id)) == 2


async def test_children_count_against_their_owners_quota(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def child(task: TaskContext) -> None:
        await task.elicit("now?", ANYTHING)

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> str:
        await task.spawn("child")
        with pytest.raises(QuotaExceeded, match="too many live tasks"):
            await task.spawn("child")
        return "enough"

    async with harness.running(Settings(quota=Quota(live=2))):
        assert await harness.result_of("parent") == "enough"


async def test_a_child_is_not_started_again_by_a_later_attempt(harness: EngineHarness) -> None:
    seen: list[str] = []

    @harness.toolbox.tool
    async def child(number: int) -> int:
        return number

    @harness.toolbox.tool(retry=AT_ONCE)
    async def parent(task: TaskContext) -> list[Any]:
        children = [await task.spawn("child", {"number": number}) for number in (1, 2)]
        seen.append(" ".join(one.id for one in children))
        if task.attempt == 1:
            raise ConnectionError
        return [await one.result() for one in children]

    async with harness.running() as engine:
        task = await engine.submit("parent")
        assert outcome_of(await engine.wait(task.id)) == [1, 2]
        assert len(await children_of(harness, task.id)) == 2
    assert len(seen) == 2
    assert seen[0] == seen[1]


async def test_a_child_of_an_unknown_tool_is_rejected(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def parent(task: TaskContext) -> str:
        with pytest.raises(UnknownTool, match="there is no tool 'nobody': the tools are parent"):
            await task.spawn("nobody")
        with pytest.raises(InvalidValue, match="tool 'parent' can't be called like that"):
            await task.spawn("parent", {"wrong": 1})
        return "done"

    async with harness.running():
        assert await harness.result_of("parent") == "done"


async def test_a_body_can_not_read_tasks_that_are_not_its_children(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def stranger() -> str:
        return "secret"

    @harness.toolbox.tool
    async def nosy(ids: list[str], task: TaskContext) -> list[str]:
        said: list[str] = []
        for task_id in ids:
            with pytest.raises(InvalidValue) as raised:
                await Child(task_id, vars(task)["_api"]).result()
            said.append(str(raised.value).replace(task_id, "…"))
        return said

    async with harness.running() as engine:
        alice = Owner.token("https://example.com", "alice")
        theirs = await engine.submit("stranger", owner=alice)
        mine = await engine.submit("stranger")
        await engine.wait(mine.id)
        said = await harness.result_of("nosy", ids=[theirs.id, mine.id, "f" * 44])
    assert isinstance(said, list)
    assert len(set(said)) == 1, "one can't tell a stranger's task from one that does not exist"


async def test_the_result_of_a_child_is_stored_while_its_parent_lives(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool(retention=Retention(keep=timedelta(seconds=1)))
    async def child() -> str:
        return "kept"

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> Any:
        one = await task.spawn("child")
        await task.artifact("child", one.id)
        await task.elicit("now?", ANYTHING)
        return await one.result()

    async with harness.running(Settings(park_after=0), clock=clock) as engine:
        task = await engine.submit("parent")
        await engine.wait(task.id, until=lambda task: task.phase is Phase.PARKED and task.signals == 1)
        (child_id,) = await children_of(harness, task.id, clock)
        clock.advance(3_600)
        assert await harness.store.prune(now=clock.now(), limit=100) == ()
        await engine.answer(task.id, {"elicit-0": YES})
        assert (await engine.wait(task.id)).outcome == b'"kept"'
        clock.advance(60)
        await asyncio.sleep(0.05)
        pruned = await harness.store.prune(now=clock.now(), limit=100)
        assert child_id in pruned or child_id not in await children_of(harness, task.id, clock)


async def test_the_children_of_a_failed_parent_are_cancelled(harness: EngineHarness) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool
    async def child() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @harness.toolbox.tool(retry_on=())
    async def parent(task: TaskContext) -> None:
        await task.spawn("child")
        await began.wait()
        raise ConnectionError

    async with harness.running() as engine:
        task, _ = await harness.failure_of("parent")
        await asyncio.wait_for(stopped.wait(), 20)
        (child_id,) = await children_of(harness, task.id)
        ended = (await engine.view(child_id)).task
        assert (ended.phase, ended.status_message) == (Phase.CANCELLED, "its parent failed")


async def test_a_parent_that_is_retried_keeps_its_children(harness: EngineHarness) -> None:
    may_end = asyncio.Event()

    @harness.toolbox.tool
    async def child(task: TaskContext) -> int:
        await may_end.wait()
        return task.attempt

    @harness.toolbox.tool(retry=AT_ONCE)
    async def parent(task: TaskContext) -> Any:
        one = await task.spawn("child")
        if task.attempt == 1:
            raise ConnectionError
        may_end.set()
        return await one.result()

    async with harness.running(QUICK):
        assert await harness.result_of("parent") == 1


async def test_the_children_of_a_completed_parent_continue(harness: EngineHarness) -> None:
    may_end = asyncio.Event()

    @harness.toolbox.tool
    async def child() -> str:
        await may_end.wait()
        return "on its own"

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> str:
        return (await task.spawn("child")).id

    async with harness.running() as engine:
        child_id = TaskId(str(await harness.result_of("parent")))
        await harness.reach(child_id, Phase.RUNNING)
        may_end.set()
        assert (await engine.wait(child_id)).outcome == b'"on its own"'
