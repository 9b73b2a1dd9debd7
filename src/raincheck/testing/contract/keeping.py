"""Retention and time: honest, exact, and not upset by a clock that jumps."""

from datetime import timedelta

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Release
from raincheck.core.content import Artifact
from raincheck.core.lifecycle import Phase
from raincheck.core.payload import encode
from raincheck.core.records import Task, TaskId
from raincheck.core.retention import Retention
from raincheck.errors import TaskNotFound
from raincheck.stores.apply import answer
from raincheck.testing.contract.base import ContractBase
from raincheck.testing.scene import EVERYTHING, LEASE, Scene, hear_until

FOREVER = 3_000_000_000.0
"""Seconds: about 95 years, and beyond what 32 bits hold in milliseconds."""


class KeepingContract(ContractBase):
    async def test_a_live_task_never_expires(self, scene: Scene) -> None:
        queued = await scene.create(retention=Retention(keep=timedelta(0), ttl=timedelta(0)))
        paused = await scene.do(await scene.create(), Pause("operator"))
        parked = await scene.begin(retention=Retention(keep=timedelta(0)))
        parked = await scene.do(parked, Park(1, seen=0))
        scene.clock.advance(FOREVER)
        assert await scene.store.prune(now=scene.clock.now(), limit=10) == ()
        for task in (queued, paused, parked):
            assert (await scene.load(task)).id == task.id

    async def test_an_ended_task_is_kept_from_its_end_and_not_from_its_creation(self, scene: Scene) -> None:
        task = await scene.begin(retention=Retention(keep=timedelta(hours=1)))
        scene.clock.advance(1_000_000)
        ended = await scene.do(task, Complete(1, encode(1)))
        assert ended.expires_at == scene.clock.now() + timedelta(hours=1)
        assert await scene.store.prune(now=scene.clock.now(), limit=10) == ()

    async def test_a_promised_ttl_is_kept_even_if_the_task_ends_early(self, scene: Scene) -> None:
        retention = Retention(keep=timedelta(hours=1), ttl=timedelta(days=30))
        task = await scene.begin(retention=retention)
        ended = await scene.do(task, Complete(1, encode(1)))
        assert ended.ttl == timedelta(days=30)
        scene.clock.advance(timedelta(days=30).total_seconds() - 1)
        assert (await scene.load(task)) == ended

    async def test_a_month_survives_in_every_duration(self, scene: Scene) -> None:
        month = timedelta(days=31, microseconds=1)
        task = await scene.begin(
            retention=Retention(keep=month), deadline_at=scene.clock.now() + month, due_at=scene.clock.now()
        )
        assert task.ttl == 2 * month
        ended = await scene.do(task, Complete(1, encode(1)))
        assert (await scene.load(task)).ttl == ended.ttl == month

    async def test_the_ttl_never_says_less_than_the_task_may_run(self, scene: Scene) -> None:
        deadline = scene.clock.now() + timedelta(hours=5)
        bounded = await scene.create(deadline_at=deadline, retention=Retention(keep=timedelta(hours=1)))
        assert bounded.ttl == timedelta(hours=6)
        assert (await scene.create(retention=Retention(ttl=timedelta(hours=1)))).ttl is None

    async def test_pruning_forgets_everything_that_belongs_to_a_task(self, scene: Scene) -> None:
        task = await self.rich_task(scene)
        ended = await scene.do(task, Complete(2, encode(1)))
        kept = await self.rich_task(scene)
        assert ended.expires_at is not None
        now = scene.clock.jump_to(ended.expires_at)
        assert await scene.store.prune(now=now, limit=10) == (task.id,)
        assert await scene.store.prune(now=now, limit=10) == ()
        with pytest.raises(TaskNotFound):
            await scene.load(task)
        assert await scene.load(kept) == kept
        # The id is free again, and what comes under it starts from nothing.
        await scene.create(id=task.id)
        journal = await scene.store.journal(task.id, EVERYTHING, now=now)
        assert (journal.steps, journal.inputs, journal.artifacts, journal.variables) == ((), (), (), None)
        assert len(await scene.history(task)) == 1

    async def test_pruning_takes_no_more_than_asked(self, scene: Scene) -> None:
        for _ in range(5):
            await scene.do(await scene.create(), Cancel("alice"))
        scene.clock.advance(FOREVER / 100)
        sizes = [len(await scene.store.prune(now=scene.clock.now(), limit=2)) for _ in range(4)]
        assert sizes == [2, 2, 1, 0]

    async def test_what_has_ended_can_be_forgotten_before_it_expires(self, scene: Scene) -> None:
        gone = await self.rich_task(scene)
        await scene.do(gone, Complete(2, encode(1)))
        kept = await scene.do(await scene.create(), Cancel("alice"))
        with scene.store.listen() as feed:
            assert await scene.store.prune(now=scene.clock.now(), limit=10, only=[gone.id]) == (gone.id,)
            await hear_until(feed, gone.id)
        with pytest.raises(TaskNotFound):
            await scene.load(gone)
        assert await scene.load(kept) == kept
        await scene.create(id=gone.id)
        assert len(await scene.history(gone)) == 1

    async def test_what_lives_or_is_not_there_is_not_forgotten_whoever_names_it(self, scene: Scene) -> None:
        live = [await scene.do(await scene.begin(), Park(1, seen=0)), await scene.begin()]
        live += [await scene.do(await scene.create(), Pause("operator")), await scene.create()]
        ids = [task.id for task in live] + [TaskId("nobody"), TaskId(f"{live[0].id}\0"), TaskId("\ud800")]
        assert await scene.store.prune(now=scene.clock.advance(FOREVER), limit=10, only=ids) == ()
        assert [await scene.load(task) for task in live] == live

    async def test_naming_tasks_prunes_no_others_and_no_more_than_asked(self, scene: Scene) -> None:
        ended = [await scene.do(await scene.create(), Cancel("alice")) for _ in range(5)]
        now, ids = scene.clock.advance(FOREVER / 100), [task.id for task in ended]
        assert await scene.store.prune(now=now, limit=10, only=[]) == ()
        assert set(await scene.store.prune(now=now, limit=10, only=[ids[1], ids[1], ids[4]])) == {ids[1], ids[4]}
        assert len(await scene.store.prune(now=now, limit=2, only=ids)) == 2
        assert len(await scene.store.prune(now=now, limit=0, only=ids)) == 1
        assert await scene.store.prune(now=now, limit=10, only=ids) == ()

    async def test_a_clock_that_jumps_back_does_not_take_the_task_with_it(self, scene: Scene) -> None:
        task = await scene.begin()
        before = scene.clock.now()
        scene.clock.advance(-3_600)
        noted = await scene.do(task, Note(1, status_message="an hour ago"))
        released = await scene.do(task, Release(1))
        (again,) = await scene.claim()
        ended = await scene.do(again, Complete(2, encode(1)))
        assert [one.updated_at for one in (noted, released, again, ended)] == [before] * 4
        assert ended.finished_at == before

    async def test_a_clock_that_jumps_ahead_costs_a_lease_and_not_the_task(self, scene: Scene) -> None:
        task = await scene.begin()
        scene.clock.advance(FOREVER)
        assert [one.id for one in await scene.store.overdue(now=scene.clock.now(), limit=10)] == [task.id]
        ended = await scene.do(task, Complete(1, encode("still in time")))
        assert ended.phase is Phase.COMPLETED

    async def test_nothing_touches_the_time_of_the_last_change_but_a_change(self, scene: Scene) -> None:
        task = await scene.begin()
        scene.clock.advance(1)
        assert await scene.do(task, Note(1)) == task
        noted = await scene.do(task, Note(1, status_message="new"))
        assert noted.updated_at == scene.clock.now()
        scene.clock.advance(1)
        assert await scene.do(task, Note(1, status_message="new")) == noted

    async def rich_task(self, scene: Scene) -> Task:
        """A running task that has one of everything."""
        task = await scene.begin()
        now = scene.clock.now()
        await scene.do(
            task,
            Note(
                1,
                steps=(scene.step("load"),),
                asked=(scene.question("publish"),),
                artifacts=(Artifact("report", encode("draft"), now),),
                variables=encode({"n": 1}),
            ),
        )
        await answer(scene.store, task.id, EVERYTHING, {"publish": encode(1)}, actor="alice", now=now)
        await scene.do(task, Release(1))
        claimed = await scene.claim(limit=10)
        assert claimed[-1].attempt is not None
        assert claimed[-1].attempt.lease.expires_at == now + LEASE
        return next(one for one in claimed if one.id == task.id)
