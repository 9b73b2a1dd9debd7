"""Contract for families: an end signals the parent, and cancels the children unless the task completed, atomically."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Command, Complete, Expire, Fail, Note, Park, Pause, Release
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.policies import OnInterrupt, Retention, RetryPolicy
from raincheck.core.records import Task, TaskId
from raincheck.core.values import encode
from raincheck.errors import LeaseLost, StaleChange
from raincheck.stores.requests import HeldAttempt
from raincheck.testing.harness import EVERYTHING, LEASE, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase

BROKE = Fail(1, encode({"message": "broke"}), "broke", retryable=False)
ENDINGS: list[Command] = [Complete(1, encode("done")), BROKE, Cancel("alice"), Expire()]


class FamilyContract(StoreContractBase):
    @pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: type(ending).__name__)
    async def test_a_parked_parent_wakes_when_its_child_ends(self, harness: StoreHarness, ending: Command) -> None:
        parent, child = await self.family(harness, deadline_at=harness.clock.now() + timedelta(seconds=5))
        parent = await harness.apply(parent, Park(1, seen_signals=parent.signals))
        now = harness.clock.advance(5)
        ended = await harness.apply(child, ending)
        woken = await harness.load(parent)
        assert (woken.phase, woken.signals, woken.updated_at) == (Phase.QUEUED, 1, now)
        entry = (await harness.history(parent))[-1]
        assert (entry.event, entry.actor) == (Event.SIGNAL, child.id)
        assert entry.note == f"child {child.id} {ended.phase}"
        assert [task.id for task in await harness.claim(limit=10)] == [parent.id]

    async def test_a_running_parent_does_not_miss_the_end_of_its_child(self, harness: StoreHarness) -> None:
        parent, child = await self.family(harness)
        await harness.apply(child, Complete(1, encode("done")))
        assert (await harness.load(parent)).phase is Phase.RUNNING
        stopped = await harness.apply(parent, Park(1, seen_signals=parent.signals))
        assert (stopped.phase, stopped.signals) == (Phase.QUEUED, 1)

    async def test_a_paused_parent_is_signalled_and_stays_paused(self, harness: StoreHarness) -> None:
        parent, child = await self.family(harness)
        await harness.apply(parent, Park(1, seen_signals=parent.signals))
        await harness.apply(parent, Pause("operator"))
        await harness.apply(child, Complete(1, encode("done")))
        current = await harness.load(parent)
        assert (current.phase, current.signals) == (Phase.PAUSED, 1)

    async def test_children_that_end_at_once_all_signal_their_parent(self, harness: StoreHarness) -> None:
        parent = await harness.create_running()
        children = [await self.spawn(harness, parent) for _ in range(10)]
        await harness.apply(parent, Park(1, seen_signals=0))
        await asyncio.gather(*(harness.apply(child, Complete(1, encode("done"))) for child in children))
        assert (await harness.load(parent)).signals == 10

    @pytest.mark.parametrize(
        ("ending", "reason"),
        [
            (Cancel("alice"), "its parent was cancelled"),
            (BROKE, "its parent failed"),
            (Expire(), "its parent failed"),
        ],
        ids=["cancelled", "failed", "expired"],
    )
    async def test_a_task_that_ends_without_completing_cancels_its_descendants(
        self, harness: StoreHarness, ending: Command, reason: str
    ) -> None:
        deadline = harness.clock.now() + timedelta(seconds=5)
        parent, child = await self.family(harness, of={"deadline_at": deadline})
        grandchild = await harness.create(parent_id=child.id)
        parked = await harness.apply(await self.spawn(harness, parent), Park(1, seen_signals=0))
        done = await harness.apply(await self.spawn(harness, parent), Complete(1, encode("done")))
        other, niece = await self.family(harness)
        now = harness.clock.jump_to(deadline)
        ended = await harness.apply(parent, ending)
        for task, actor, note in (
            (child, parent.id, reason),
            (parked, parent.id, reason),
            (grandchild, child.id, "its parent was cancelled"),
        ):
            current = await harness.load(task)
            assert (current.phase, current.status_message, current.finished_at) == (Phase.CANCELLED, note, now)
            entry = (await harness.history(task))[-1]
            assert (entry.event, entry.actor, entry.note) == (Event.CANCEL, actor, note)
        # Tasks that had already ended stay unchanged, the parent included, and so does another family.
        assert [await harness.load(task) for task in (done, ended, other, niece)] == [done, ended, other, niece]

    async def test_a_child_that_was_running_has_lost_its_lease(self, harness: StoreHarness) -> None:
        parent, child = await self.family(harness)
        await harness.apply(parent, Cancel("alice"))
        with pytest.raises(LeaseLost):
            await harness.apply(child, Complete(1, encode("too late")))
        held = [HeldAttempt(child.id, child.attempt_number)]
        assert await harness.store.extend_leases(held, until=harness.clock.now() + LEASE) == {child.id}

    async def test_a_completed_parent_does_not_affect_its_children(self, harness: StoreHarness) -> None:
        parent, child = await self.family(harness)
        completed = await harness.apply(parent, Complete(1, encode("done")))
        assert await harness.load(child) == child
        await harness.apply(child, Complete(1, encode("later")))
        assert await harness.load(parent) == completed

    async def test_the_children_of_a_parent_whose_last_attempt_died_are_cancelled(self, harness: StoreHarness) -> None:
        parent, child = await self.family(harness, of={"retry": RetryPolicy(on_interrupt=OnInterrupt.FAIL)})
        now = harness.clock.advance(LEASE.total_seconds())
        await harness.store.extend_leases([HeldAttempt(child.id, child.attempt_number)], until=now + LEASE)
        assert [task.id for task in await harness.sweep()] == [parent.id]
        assert (await harness.load(child)).phase is Phase.CANCELLED

    async def test_a_parent_that_stops_without_ending_keeps_its_children(self, harness: StoreHarness) -> None:
        parent, child = await self.family(harness)
        await harness.apply(parent, Release(1))
        assert await harness.load(child) == child

    async def test_a_cancel_cancels_a_long_chain_of_descendants(self, harness: StoreHarness) -> None:
        first = last = await harness.create()
        for _ in range(100):
            last = await harness.create(parent_id=last.id)
        await harness.apply(first, Cancel("alice"))
        assert await harness.store.count_live(EVERYTHING) == {}

    async def test_a_child_without_an_existing_parent_can_end(self, harness: StoreHarness) -> None:
        child = await harness.create_running(parent_id=TaskId("unknown"))
        assert (await harness.apply(child, Complete(1, encode("done")))).phase is Phase.COMPLETED

    async def test_tasks_that_are_each_others_parents_can_be_cancelled(self, harness: StoreHarness) -> None:
        one, two = TaskId("one"), TaskId("two")
        tasks = [await harness.create(id=one, parent_id=two), await harness.create(id=two, parent_id=one)]
        itself = await harness.create(id=TaskId("itself"), parent_id=TaskId("itself"))
        for task in (tasks[0], itself):
            await harness.apply(task, Cancel("alice"))
        assert {(await harness.load(task)).phase for task in (*tasks, itself)} == {Phase.CANCELLED}

    async def test_a_failed_commit_changes_no_relatives(self, harness: StoreHarness) -> None:
        parent, child = await self.family(harness)
        other = await harness.create_running()
        ending, stale = (harness.decide(task, Cancel("alice")) for task in (parent, other))
        other = await harness.apply(other, Note(1, status_message="quicker"))
        with pytest.raises(StaleChange):
            await harness.store.commit([ending, stale])
        assert [await harness.load(task) for task in (parent, child, other)] == [parent, child, other]

    async def test_a_commit_that_changes_a_task_and_its_cascading_relative_is_stale(
        self, harness: StoreHarness
    ) -> None:
        parent, child = await self.family(harness)
        of_parent, of_child = (harness.decide(task, Cancel("alice")) for task in (parent, child))
        for changes, stale in (([of_parent, of_child], child), ([of_child, of_parent], parent)):
            with pytest.raises(StaleChange) as caught:
                await harness.store.commit(changes)
            assert caught.value.task_id == stale.id
            assert [await harness.load(task) for task in (parent, child)] == [parent, child]

    async def test_the_change_feed_reports_every_relative_that_changed(self, harness: StoreHarness) -> None:
        grandparent, parent = await self.family(harness)
        child = await self.spawn(harness, parent)
        reported: set[TaskId] = set()
        with harness.store.listen() as feed:
            await harness.apply(parent, Cancel("alice"))
            async with asyncio.timeout(10):
                while not {grandparent.id, parent.id, child.id} <= reported:
                    reported |= await anext(feed)

    async def test_an_expired_child_is_not_pruned_while_its_parent_is_live(self, harness: StoreHarness) -> None:
        brief = Retention(keep=timedelta(seconds=1))
        parent, child = await self.family(harness, of={"retention": brief}, retention=brief)
        await harness.apply(child, Complete(1, encode("done")))
        orphan = await harness.create_running(parent_id=TaskId("unknown"), retention=brief)
        await harness.apply(orphan, Complete(1, encode("done")))
        now = harness.clock.advance(1)
        assert await harness.store.prune(now=now, limit=10) == (orphan.id,)
        await harness.apply(parent, Complete(1, encode("done")))
        now = harness.clock.advance(1)
        assert set(await harness.store.prune(now=now, limit=10)) == {parent.id, child.id}

    async def test_a_child_of_a_live_parent_is_not_pruned_early(self, harness: StoreHarness) -> None:
        parent, child = await self.family(harness)
        await harness.apply(child, Complete(1, encode("done")))
        both = [child.id, parent.id]
        assert await harness.store.prune(now=harness.clock.now(), limit=10, only=both) == ()
        await harness.apply(parent, Complete(1, encode("done")))
        assert set(await harness.store.prune(now=harness.clock.now(), limit=10, only=both)) == set(both)

    async def family(self, harness: StoreHarness, of: dict[str, Any] | None = None, **fields: Any) -> tuple[Task, Task]:  # noqa: ANN401 - the fields of NewTask
        """Create a running parent with the fields `of`, and its running child with `fields`."""
        parent = await harness.create_running(**(of or {}))
        child = await self.spawn(harness, parent, **fields)
        return await harness.load(parent), child

    async def spawn(self, harness: StoreHarness, parent: Task, **fields: Any) -> Task:  # noqa: ANN401 - likewise
        child = harness.creation(parent_id=parent.id, **fields)
        await harness.apply(parent, Note(1, spawned=(child,)))
        return next(task for task in await harness.claim(limit=1_000) if task.id == child.task.id)
