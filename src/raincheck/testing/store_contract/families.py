"""Contract for families: an end signals the parent, and cancels the children unless the task completed, atomically."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Command, Complete, Expire, Fail, Note, Park, Pause, Release
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.payload import encode
from raincheck.core.policies import OnInterrupt, Retention, RetryPolicy
from raincheck.core.records import Task, TaskId
from raincheck.errors import LeaseLost, StaleChange
from raincheck.stores.commit import sweep
from raincheck.stores.requests import HeldAttempt
from raincheck.testing.harness import EVERYTHING, LEASE, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase

BROKE = Fail(1, encode({"message": "broke"}), "broke", retryable=False)
ENDINGS: list[Command] = [Complete(1, encode("done")), BROKE, Cancel("alice"), Expire()]


class FamilyContract(StoreContractBase):
    @pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: type(ending).__name__)
    async def test_a_parent_that_waits_for_its_child_wakes_when_that_ends(
        self, scene: StoreHarness, ending: Command
    ) -> None:
        parent, child = await self.family(scene, deadline_at=scene.clock.now() + timedelta(seconds=5))
        parent = await scene.apply(parent, Park(1, seen_signals=parent.signals))
        now = scene.clock.advance(5)
        ended = await scene.apply(child, ending)
        woken = await scene.load(parent)
        assert (woken.phase, woken.signals, woken.updated_at) == (Phase.QUEUED, 1, now)
        entry = (await scene.history(parent))[-1]
        assert (entry.event, entry.actor) == (Event.SIGNAL, child.id)
        assert entry.note == f"child {child.id} {ended.phase}"
        assert [task.id for task in await scene.claim(limit=10)] == [parent.id]

    async def test_a_running_parent_cannot_sleep_through_its_childs_end(self, scene: StoreHarness) -> None:
        parent, child = await self.family(scene)
        await scene.apply(child, Complete(1, encode("done")))
        assert (await scene.load(parent)).phase is Phase.RUNNING
        stopped = await scene.apply(parent, Park(1, seen_signals=parent.signals))
        assert (stopped.phase, stopped.signals) == (Phase.QUEUED, 1)

    async def test_a_paused_parent_hears_of_it_and_stays_paused(self, scene: StoreHarness) -> None:
        parent, child = await self.family(scene)
        await scene.apply(parent, Park(1, seen_signals=parent.signals))
        await scene.apply(parent, Pause("operator"))
        await scene.apply(child, Complete(1, encode("done")))
        now_so = await scene.load(parent)
        assert (now_so.phase, now_so.signals) == (Phase.PAUSED, 1)

    async def test_children_that_end_at_once_are_all_heard(self, scene: StoreHarness) -> None:
        parent = await scene.create_running()
        children = [await self.spawn(scene, parent) for _ in range(10)]
        await scene.apply(parent, Park(1, seen_signals=0))
        await asyncio.gather(*(scene.apply(child, Complete(1, encode("done"))) for child in children))
        assert (await scene.load(parent)).signals == 10

    @pytest.mark.parametrize(
        ("ending", "reason"),
        [
            (Cancel("alice"), "its parent was cancelled"),
            (BROKE, "its parent failed"),
            (Expire(), "its parent failed"),
        ],
        ids=["cancelled", "failed", "expired"],
    )
    async def test_what_ends_without_completing_takes_its_descendants_with_it(
        self, scene: StoreHarness, ending: Command, reason: str
    ) -> None:
        deadline = scene.clock.now() + timedelta(seconds=5)
        parent, child = await self.family(scene, of={"deadline_at": deadline})
        grandchild = await scene.create(parent_id=child.id)
        parked = await scene.apply(await self.spawn(scene, parent), Park(1, seen_signals=0))
        done = await scene.apply(await self.spawn(scene, parent), Complete(1, encode("done")))
        other, niece = await self.family(scene)
        now = scene.clock.jump_to(deadline)
        ended = await scene.apply(parent, ending)
        for task, actor, why in (
            (child, parent.id, reason),
            (parked, parent.id, reason),
            (grandchild, child.id, "its parent was cancelled"),
        ):
            now_so = await scene.load(task)
            assert (now_so.phase, now_so.status_message, now_so.finished_at) == (Phase.CANCELLED, why, now)
            entry = (await scene.history(task))[-1]
            assert (entry.event, entry.actor, entry.note) == (Event.CANCEL, actor, why)
        # Tasks that had already ended stay unchanged, the parent included, and so does another family.
        assert [await scene.load(task) for task in (done, ended, other, niece)] == [done, ended, other, niece]

    async def test_a_child_that_was_running_has_lost_its_lease(self, scene: StoreHarness) -> None:
        parent, child = await self.family(scene)
        await scene.apply(parent, Cancel("alice"))
        with pytest.raises(LeaseLost):
            await scene.apply(child, Complete(1, encode("too late")))
        held = [HeldAttempt(child.id, child.attempt_number)]
        assert await scene.store.extend_leases(held, until=scene.clock.now() + LEASE) == {child.id}

    async def test_what_completes_leaves_its_children_alone(self, scene: StoreHarness) -> None:
        parent, child = await self.family(scene)
        completed = await scene.apply(parent, Complete(1, encode("done")))
        assert await scene.load(child) == child
        await scene.apply(child, Complete(1, encode("later")))
        assert await scene.load(parent) == completed

    async def test_a_parent_that_dies_for_the_last_time_takes_its_children_with_it(self, scene: StoreHarness) -> None:
        parent, child = await self.family(scene, of={"retry": RetryPolicy(on_interrupt=OnInterrupt.FAIL)})
        now = scene.clock.advance(LEASE.total_seconds())
        await scene.store.extend_leases([HeldAttempt(child.id, child.attempt_number)], until=now + LEASE)
        assert [task.id for task in await sweep(scene.store, now=now)] == [parent.id]
        assert (await scene.load(child)).phase is Phase.CANCELLED

    async def test_a_parent_that_stops_without_ending_keeps_its_children(self, scene: StoreHarness) -> None:
        parent, child = await self.family(scene)
        await scene.apply(parent, Release(1))
        assert await scene.load(child) == child

    async def test_a_long_line_of_descendants_ends_with_the_first(self, scene: StoreHarness) -> None:
        first = last = await scene.create()
        for _ in range(100):
            last = await scene.create(parent_id=last.id)
        await scene.apply(first, Cancel("alice"))
        assert await scene.store.count_live(EVERYTHING) == {}

    async def test_a_parent_that_is_gone_or_never_was_is_not_missed(self, scene: StoreHarness) -> None:
        child = await scene.create_running(parent_id=TaskId("nobody"))
        assert (await scene.apply(child, Complete(1, encode("done")))).phase is Phase.COMPLETED

    async def test_relatives_in_a_circle_end_all_the_same(self, scene: StoreHarness) -> None:
        one, two = TaskId("one"), TaskId("two")
        tasks = [await scene.create(id=one, parent_id=two), await scene.create(id=two, parent_id=one)]
        itself = await scene.create(id=TaskId("itself"), parent_id=TaskId("itself"))
        for task in (tasks[0], itself):
            await scene.apply(task, Cancel("alice"))
        assert {(await scene.load(task)).phase for task in (*tasks, itself)} == {Phase.CANCELLED}

    async def test_a_commit_that_fails_leaves_the_relatives_alone_too(self, scene: StoreHarness) -> None:
        parent, child = await self.family(scene)
        other = await scene.create_running()
        ending, stale = (decide(task, Cancel("alice"), scene.clock.now()) for task in (parent, other))
        assert ending is not None
        assert stale is not None
        other = await scene.apply(other, Note(1, status_message="quicker"))
        with pytest.raises(StaleChange):
            await scene.store.commit([ending, stale])
        assert [await scene.load(task) for task in (parent, child, other)] == [parent, child, other]

    async def test_a_commit_of_a_task_and_of_a_relative_that_its_end_changes_is_stale(
        self, scene: StoreHarness
    ) -> None:
        parent, child = await self.family(scene)
        of_parent, of_child = (decide(task, Cancel("alice"), scene.clock.now()) for task in (parent, child))
        assert of_parent is not None
        assert of_child is not None
        for changes, stale in (([of_parent, of_child], child), ([of_child, of_parent], parent)):
            with pytest.raises(StaleChange) as caught:
                await scene.store.commit(changes)
            assert caught.value.task_id == stale.id
            assert [await scene.load(task) for task in (parent, child)] == [parent, child]

    async def test_those_who_listen_hear_of_every_relative_that_changed(self, scene: StoreHarness) -> None:
        grandparent, parent = await self.family(scene)
        child = await self.spawn(scene, parent)
        news: set[TaskId] = set()
        with scene.store.listen() as feed:
            await scene.apply(parent, Cancel("alice"))
            async with asyncio.timeout(10):
                while not {grandparent.id, parent.id, child.id} <= news:
                    news |= await anext(feed)

    async def test_an_expired_child_is_kept_while_its_parent_lives(self, scene: StoreHarness) -> None:
        brief = Retention(keep=timedelta(seconds=1))
        parent, child = await self.family(scene, of={"retention": brief}, retention=brief)
        await scene.apply(child, Complete(1, encode("done")))
        orphan = await scene.create_running(parent_id=TaskId("nobody"), retention=brief)
        await scene.apply(orphan, Complete(1, encode("done")))
        now = scene.clock.advance(1)
        assert await scene.store.prune(now=now, limit=10) == (orphan.id,)
        await scene.apply(parent, Complete(1, encode("done")))
        now = scene.clock.advance(1)
        assert set(await scene.store.prune(now=now, limit=10)) == {parent.id, child.id}

    async def test_a_child_whose_parent_lives_is_not_forgotten_early(self, scene: StoreHarness) -> None:
        parent, child = await self.family(scene)
        await scene.apply(child, Complete(1, encode("done")))
        both = [child.id, parent.id]
        assert await scene.store.prune(now=scene.clock.now(), limit=10, only=both) == ()
        await scene.apply(parent, Complete(1, encode("done")))
        assert set(await scene.store.prune(now=scene.clock.now(), limit=10, only=both)) == set(both)

    async def family(self, scene: StoreHarness, of: dict[str, Any] | None = None, **fields: Any) -> tuple[Task, Task]:  # noqa: ANN401 - the fields of NewTask
        """Create a running parent with the fields `of`, and its running child with `fields`."""
        parent = await scene.create_running(**(of or {}))
        child = await self.spawn(scene, parent, **fields)
        return await scene.load(parent), child

    async def spawn(self, scene: StoreHarness, parent: Task, **fields: Any) -> Task:  # noqa: ANN401 - likewise
        child = scene.creation(parent_id=parent.id, **fields)
        await scene.apply(parent, Note(1, spawned=(child,)))
        return next(task for task in await scene.claim(limit=1_000) if task.id == child.task.id)
