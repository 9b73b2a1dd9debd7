"""What a task brings into the world: with the change that spawns it, whole, and within its owner's quota."""

from datetime import timedelta

import pytest

from raincheck.core.commands import Complete, Note
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.payload import encode
from raincheck.errors import AlreadyRecorded, QuotaExceeded, TaskNotFound
from raincheck.testing.contract.base import ContractBase
from raincheck.testing.scene import BOB, EVERYTHING, Scene


class SpawningContract(ContractBase):
    async def test_a_child_begins_to_exist_with_the_change_that_spawns_it(self, scene: Scene) -> None:
        parent = await scene.begin()
        child = scene.creation(parent_id=parent.id)
        spawning = decide(parent, Note(1, spawned=(child,)), scene.clock.now())
        assert spawning is not None
        with pytest.raises(TaskNotFound):
            await scene.load(child.task)
        await scene.store.commit([spawning])
        assert await scene.load(child.task) == child.task

    async def test_a_child_whose_id_exists_takes_the_whole_change_with_it(self, scene: Scene) -> None:
        other = await scene.create()
        parent = await scene.begin()
        note = Note(1, steps=(scene.step("spawn"),), spawned=(scene.creation(id=other.id),))
        with pytest.raises(AlreadyRecorded):
            await scene.do(parent, note)
        journal = await scene.store.journal(parent.id, EVERYTHING, now=scene.clock.now())
        assert (journal.steps, journal.task) == ((), parent)

    async def test_a_successor_begins_with_the_completion_of_the_task_before_it(self, scene: Scene) -> None:
        task = await scene.begin()
        successors = (scene.creation(), scene.creation(due_at=scene.clock.now() + timedelta(seconds=1)))
        done = await scene.do(task, Complete(1, encode("done"), spawned=successors))
        assert done.phase is Phase.COMPLETED
        one, two = successors
        assert [await scene.load(each.task) for each in successors] == [one.task, two.task]
        assert (await scene.history(task))[-1].note == f"spawned {one.task.id}, spawned {two.task.id}"
        assert [claimed.id for claimed in await scene.claim(limit=10)] == [one.task.id]

    async def test_a_completion_whose_successor_cannot_begin_is_none(self, scene: Scene) -> None:
        other = await scene.create()
        task = await scene.begin()
        successors = (scene.creation(), scene.creation(id=other.id))
        with pytest.raises(AlreadyRecorded):
            await scene.do(task, Complete(1, encode("done"), spawned=successors))
        assert await scene.load(task) == task
        with pytest.raises(TaskNotFound):
            await scene.load(successors[0].task)

    async def test_spawned_tasks_over_the_live_quota_are_refused_whole(self, scene: Scene) -> None:
        parent = await scene.begin()
        await scene.create(owner=BOB)
        children = tuple(scene.creation(parent_id=parent.id) for _ in range(3))
        step = scene.step("spawn")
        with pytest.raises(QuotaExceeded, match="live tasks"):
            await scene.do(parent, Note(1, steps=(step,), spawned=children, quota=Quota(live=3)))
        journal = await scene.store.journal(parent.id, EVERYTHING, now=scene.clock.now())
        assert (journal.task, journal.steps) == (parent, ())
        for child in children:
            with pytest.raises(TaskNotFound):
                await scene.load(child.task)
        await scene.do(parent, Note(1, steps=(step,), spawned=children, quota=Quota(live=4)))
        assert [await scene.load(child.task) for child in children] == [child.task for child in children]

    async def test_a_task_that_completes_makes_room_for_its_successor(self, scene: Scene) -> None:
        task = await scene.begin()
        for count in (2, 1):
            spawned = tuple(scene.creation() for _ in range(count))
            complete = Complete(1, encode("done"), spawned=spawned, quota=Quota(live=1))
            if count > 1:
                with pytest.raises(QuotaExceeded):
                    await scene.do(task, complete)
                assert await scene.load(task) == task
            else:
                await scene.do(task, complete)
        assert await scene.store.count_live(EVERYTHING) == {Phase.QUEUED: 1}

    async def test_spawned_tasks_count_as_created_within_the_window(self, scene: Scene) -> None:
        parent = await scene.begin()
        quota = Quota(created=2, window=timedelta(seconds=60))
        scene.clock.advance(59)
        await scene.do(parent, Note(1, spawned=(scene.creation(parent_id=parent.id),), quota=quota))
        with pytest.raises(QuotaExceeded, match="new tasks"):
            await scene.do(parent, Note(1, spawned=(scene.creation(parent_id=parent.id),), quota=quota))
        scene.clock.advance(1)
        await scene.do(parent, Note(1, spawned=(scene.creation(parent_id=parent.id),), quota=quota))
