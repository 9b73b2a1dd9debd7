"""Children: they are started once, bounded, counted, cancelled with their parent, and kept until it has read them."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import Json
from raincheck.core.policies import Retention, RetryPolicy
from raincheck.core.records import TaskId
from raincheck.engine import Child, Settings, TaskContext
from raincheck.errors import InvalidValue, QuotaExceeded, TooLarge, UnknownTool
from raincheck.stores.requests import TaskQuery
from raincheck.testing import FakeClock
from tests.support.engine.harness import QUICK, Bench, outcome_of
from tests.support.engine.observed_store import a_clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

AT_ONCE = RetryPolicy(attempts=3, jitter=0, first_wait=RetryPolicy().first_wait * 0)
ANYTHING = {"type": "object"}
YES: Json = {"action": "accept", "content": {}}


def within(**limits: Any) -> Settings:
    return Settings(park_after=0.05, lease=1, limits=Limits(**limits))


async def children_of(bench: Bench, task_id: TaskId, clock: FakeClock | None = None) -> list[TaskId]:
    now = (clock or a_clock()).now()
    page = await bench.store.list_tasks(TaskQuery(Scope.everything(), parent_id=task_id), now=now)
    return [task.id for task in page.tasks]


async def test_a_family_has_no_more_generations_than_allowed(bench: Bench) -> None:
    @bench.toolbox.tool
    async def generation(number: int, task: TaskContext) -> int:
        try:
            child = await task.spawn("generation", {"number": number + 1})
        except TooLarge:
            return number
        return int(str(await child.result()))

    async with bench.working(within(depth=3)):
        assert await bench.result_of("generation", number=0) == 3


async def test_a_task_has_no_more_children_than_allowed_whatever_attempt_had_them(bench: Bench) -> None:
    @bench.toolbox.tool
    async def child() -> None: ...

    @bench.toolbox.tool(retry=AT_ONCE)
    async def parent(task: TaskContext) -> str:
        for _ in range(3):
            await task.spawn("child")
        if task.attempt == 1:
            raise ConnectionError
        with pytest.raises(TooLarge, match="4 children, and 3 are allowed"):
            await task.spawn("child")
        return "enough"

    async with bench.working(within(children=3)) as engine:
        task = await engine.submit("parent")
        assert (await engine.wait(task.id)).outcome == b'"enough"'
        assert len(await children_of(bench, task.id)) == 3


async def test_branches_side_by_side_do_not_get_past_a_bound_together(bench: Bench) -> None:
    @bench.toolbox.tool
    async def child() -> None: ...

    @bench.toolbox.tool
    async def parent(task: TaskContext) -> list[int]:
        def refused(results: list[Any]) -> int:
            assert all(isinstance(one, TooLarge) for one in results if isinstance(one, BaseException))
            return sum(isinstance(one, TooLarge) for one in results)

        spawned = await asyncio.gather(*(task.spawn("child") for _ in range(6)), return_exceptions=True)
        kept = (task.artifact(str(number), number) for number in range(6))
        artifacts = await asyncio.gather(*kept, return_exceptions=True)
        steps = await asyncio.gather(*(task.step(str(n), lambda: 1) for n in range(6)), return_exceptions=True)
        return [refused(spawned), refused(artifacts), refused(steps)]

    async with bench.working(within(children=2, artifacts=3, steps=6)) as engine:
        task = await engine.submit("parent")
        # Children are steps too: two of the six.
        assert (await engine.wait(task.id)).outcome == b"[4,3,2]"
        assert len(await children_of(bench, task.id)) == 2


async def test_children_count_against_their_owners_quota(bench: Bench) -> None:
    @bench.toolbox.tool
    async def child(task: TaskContext) -> None:
        await task.elicit("now?", ANYTHING)

    @bench.toolbox.tool
    async def parent(task: TaskContext) -> str:
        await task.spawn("child")
        with pytest.raises(QuotaExceeded, match="too many live tasks"):
            await task.spawn("child")
        return "enough"

    async with bench.working(Settings(quota=Quota(live=2))):
        assert await bench.result_of("parent") == "enough"


async def test_a_child_is_not_started_again_by_a_later_attempt(bench: Bench) -> None:
    seen: list[str] = []

    @bench.toolbox.tool
    async def child(number: int) -> int:
        return number

    @bench.toolbox.tool(retry=AT_ONCE)
    async def parent(task: TaskContext) -> list[Any]:
        children = [await task.spawn("child", {"number": number}) for number in (1, 2)]
        seen.append(" ".join(one.id for one in children))
        if task.attempt == 1:
            raise ConnectionError
        return [await one.result() for one in children]

    async with bench.working() as engine:
        task = await engine.submit("parent")
        assert outcome_of(await engine.wait(task.id)) == [1, 2]
        assert len(await children_of(bench, task.id)) == 2
    assert len(seen) == 2
    assert seen[0] == seen[1]


async def test_a_child_of_a_tool_that_is_not_there_is_refused(bench: Bench) -> None:
    @bench.toolbox.tool
    async def parent(task: TaskContext) -> str:
        with pytest.raises(UnknownTool, match="there is no tool 'nobody': there is parent"):
            await task.spawn("nobody")
        with pytest.raises(InvalidValue, match="tool 'parent' can't be called like that"):
            await task.spawn("parent", {"wrong": 1})
        return "done"

    async with bench.working():
        assert await bench.result_of("parent") == "done"


async def test_a_body_learns_nothing_of_tasks_that_are_not_its_children(bench: Bench) -> None:
    @bench.toolbox.tool
    async def stranger() -> str:
        return "secret"

    @bench.toolbox.tool
    async def nosy(ids: list[str], task: TaskContext) -> list[str]:
        said: list[str] = []
        for task_id in ids:
            with pytest.raises(InvalidValue) as raised:
                await Child(task_id, vars(task)["_api"]).result()
            said.append(str(raised.value).replace(task_id, "…"))
        return said

    async with bench.working() as engine:
        alice = Owner.token("https://example.com", "alice")
        theirs = await engine.submit("stranger", owner=alice)
        mine = await engine.submit("stranger")
        await engine.wait(mine.id)
        said = await bench.result_of("nosy", ids=[theirs.id, mine.id, "f" * 44])
    assert isinstance(said, list)
    assert len(set(said)) == 1, "one can't tell a stranger's task from one that does not exist"


async def test_what_a_child_left_is_kept_for_as_long_as_its_parent_lives(bench: Bench) -> None:
    clock = a_clock()

    @bench.toolbox.tool(retention=Retention(keep=timedelta(seconds=1)))
    async def child() -> str:
        return "kept"

    @bench.toolbox.tool
    async def parent(task: TaskContext) -> Any:
        one = await task.spawn("child")
        await task.artifact("child", one.id)
        await task.elicit("now?", ANYTHING)
        return await one.result()

    async with bench.working(Settings(park_after=0), clock=clock) as engine:
        task = await engine.submit("parent")
        await engine.wait(task.id, until=lambda task: task.phase is Phase.PARKED and task.signals == 1)
        (child_id,) = await children_of(bench, task.id, clock)
        clock.advance(3_600)
        assert await bench.store.prune(now=clock.now(), limit=100) == ()
        await engine.answer(task.id, {"elicit-0": YES})
        assert (await engine.wait(task.id)).outcome == b'"kept"'
        clock.advance(60)
        await asyncio.sleep(0.05)
        pruned = await bench.store.prune(now=clock.now(), limit=100)
        assert child_id in pruned or child_id not in await children_of(bench, task.id, clock)


async def test_a_parent_that_fails_takes_its_children_with_it(bench: Bench) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @bench.toolbox.tool
    async def child() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @bench.toolbox.tool(retry_on=())
    async def parent(task: TaskContext) -> None:
        await task.spawn("child")
        await began.wait()
        raise ConnectionError

    async with bench.working() as engine:
        task, _ = await bench.failure_of("parent")
        await asyncio.wait_for(stopped.wait(), 20)
        (child_id,) = await children_of(bench, task.id)
        ended = (await engine.view(child_id)).task
        assert (ended.phase, ended.status_message) == (Phase.CANCELLED, "its parent failed")


async def test_a_parent_that_tries_again_keeps_its_children(bench: Bench) -> None:
    may_end = asyncio.Event()

    @bench.toolbox.tool
    async def child(task: TaskContext) -> int:
        await may_end.wait()
        return task.attempt

    @bench.toolbox.tool(retry=AT_ONCE)
    async def parent(task: TaskContext) -> Any:
        one = await task.spawn("child")
        if task.attempt == 1:
            raise ConnectionError
        may_end.set()
        return await one.result()

    async with bench.working(QUICK):
        assert await bench.result_of("parent") == 1


async def test_a_parent_that_completes_leaves_its_children_alone(bench: Bench) -> None:
    may_end = asyncio.Event()

    @bench.toolbox.tool
    async def child() -> str:
        await may_end.wait()
        return "on its own"

    @bench.toolbox.tool
    async def parent(task: TaskContext) -> str:
        return (await task.spawn("child")).id

    async with bench.working() as engine:
        child_id = TaskId(str(await bench.result_of("parent")))
        await bench.reach(child_id, Phase.RUNNING)
        may_end.set()
        assert (await engine.wait(child_id)).outcome == b'"on its own"'
