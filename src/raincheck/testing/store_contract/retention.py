"""Contract for retention and for releasing idempotency keys.

Retention is honest, exact, and not disturbed by a clock that jumps. A released idempotency key can be used by another
task, and nothing else changes.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Release
from raincheck.core.lifecycle import Phase
from raincheck.core.policies import Quota, Retention
from raincheck.core.records import Artifact, Task, TaskId
from raincheck.core.values import encode
from raincheck.errors import IdempotencyConflict, QuotaExceeded, TaskNotFound
from raincheck.testing.harness import BOB, EVERYTHING, KEYED, LEASE, OTHER_REQUEST, StoreHarness, wait_for_hint
from raincheck.testing.store_contract.base import Handles, StoreContractBase, hinted_during

FOREVER = 3_000_000_000.0
"""Seconds: about 95 years, and more milliseconds than 32 bits hold."""


class RetentionContract(StoreContractBase):
    async def test_a_live_task_never_expires(self, harness: StoreHarness) -> None:
        queued = await harness.create(retention=Retention(keep=timedelta(0), ttl=timedelta(0)))
        paused = await harness.apply(await harness.create(), Pause("operator"))
        parked = await harness.create_running(retention=Retention(keep=timedelta(0)))
        parked = await harness.apply(parked, Park(1, seen_signals=0))
        harness.clock.advance(FOREVER)
        assert await harness.store.prune(now=harness.clock.now(), limit=10) == ()
        for task in (queued, paused, parked):
            assert (await harness.load(task)).id == task.id

    async def test_retention_counts_from_the_end_of_the_task_not_from_its_creation(self, harness: StoreHarness) -> None:
        task = await harness.create_running(retention=Retention(keep=timedelta(hours=1)))
        harness.clock.advance(1_000_000)
        ended = await harness.apply(task, Complete(1, encode(1)))
        assert ended.expires_at == harness.clock.now() + timedelta(hours=1)
        assert await harness.store.prune(now=harness.clock.now(), limit=10) == ()

    async def test_a_promised_ttl_holds_even_if_the_task_ends_early(self, harness: StoreHarness) -> None:
        retention = Retention(keep=timedelta(hours=1), ttl=timedelta(days=30))
        task = await harness.create_running(retention=retention)
        ended = await harness.apply(task, Complete(1, encode(1)))
        assert ended.ttl == timedelta(days=30)
        harness.clock.advance(timedelta(days=30).total_seconds() - 1)
        assert (await harness.load(task)) == ended

    async def test_a_month_survives_in_every_duration(self, harness: StoreHarness) -> None:
        month = timedelta(days=31, microseconds=1)
        task = await harness.create_running(
            retention=Retention(keep=month), deadline_at=harness.clock.now() + month, due_at=harness.clock.now()
        )
        assert task.ttl == 2 * month
        ended = await harness.apply(task, Complete(1, encode(1)))
        assert (await harness.load(task)).ttl == ended.ttl == month

    async def test_the_ttl_is_never_shorter_than_the_task_may_run(self, harness: StoreHarness) -> None:
        deadline = harness.clock.now() + timedelta(hours=5)
        bounded = await harness.create(deadline_at=deadline, retention=Retention(keep=timedelta(hours=1)))
        assert bounded.ttl == timedelta(hours=6)
        assert (await harness.create(retention=Retention(ttl=timedelta(hours=1)))).ttl is None

    async def test_pruning_deletes_everything_that_belongs_to_a_task(self, harness: StoreHarness) -> None:
        task = await self.rich_task(harness)
        ended = await harness.apply(task, Complete(2, encode(1)))
        unexpired = await self.rich_task(harness)
        now = harness.jump_to_expiry(ended)
        assert await harness.store.prune(now=now, limit=10) == (task.id,)
        assert await harness.store.prune(now=now, limit=10) == ()
        with pytest.raises(TaskNotFound):
            await harness.load(task)
        assert await harness.load(unexpired) == unexpired
        # The id is free again, and a new task with that id starts empty.
        await harness.create(id=task.id)
        journal = await harness.store.journal(task.id, EVERYTHING, now=now)
        assert (journal.steps, journal.inputs, journal.artifacts, journal.variables) == ((), (), (), None)
        assert len(await harness.history(task)) == 1

    async def test_pruning_deletes_at_most_its_limit(self, harness: StoreHarness) -> None:
        for _ in range(5):
            await harness.apply(await harness.create(), Cancel("alice"))
        harness.clock.advance(FOREVER / 100)
        sizes = [len(await harness.store.prune(now=harness.clock.now(), limit=2)) for _ in range(4)]
        assert sizes == [2, 2, 1, 0]

    async def test_a_terminal_task_can_be_pruned_before_it_expires(self, harness: StoreHarness) -> None:
        gone = await self.rich_task(harness)
        await harness.apply(gone, Complete(2, encode(1)))
        unexpired = await harness.apply(await harness.create(), Cancel("alice"))
        with harness.store.listen() as feed:
            assert await harness.store.prune(now=harness.clock.now(), limit=10, only=[gone.id]) == (gone.id,)
            await wait_for_hint(feed, gone.id)
        with pytest.raises(TaskNotFound):
            await harness.load(gone)
        assert await harness.load(unexpired) == unexpired
        await harness.create(id=gone.id)
        assert len(await harness.history(gone)) == 1

    async def test_live_and_unknown_tasks_are_not_pruned_by_name(self, harness: StoreHarness) -> None:
        live = [
            await harness.apply(await harness.create_running(), Park(1, seen_signals=0)),
            await harness.create_running(),
        ]
        live += [await harness.apply(await harness.create(), Pause("operator")), await harness.create()]
        ids = [task.id for task in live] + [TaskId("unknown"), TaskId(f"{live[0].id}\0"), TaskId("\ud800")]
        assert await harness.store.prune(now=harness.clock.advance(FOREVER), limit=10, only=ids) == ()
        assert [await harness.load(task) for task in live] == live

    async def test_pruning_named_tasks_prunes_no_others_and_at_most_the_limit(self, harness: StoreHarness) -> None:
        ended = [await harness.apply(await harness.create(), Cancel("alice")) for _ in range(5)]
        now, ids = harness.clock.advance(FOREVER / 100), [task.id for task in ended]
        assert await harness.store.prune(now=now, limit=10, only=[]) == ()
        assert set(await harness.store.prune(now=now, limit=10, only=[ids[1], ids[1], ids[4]])) == {ids[1], ids[4]}
        assert len(await harness.store.prune(now=now, limit=2, only=ids)) == 2
        assert len(await harness.store.prune(now=now, limit=0, only=ids)) == 1
        assert await harness.store.prune(now=now, limit=10, only=ids) == ()

    async def test_a_clock_that_jumps_back_does_not_move_the_tasks_times_back(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        before = harness.clock.now()
        harness.clock.advance(-3_600)
        noted = await harness.apply(task, Note(1, status_message="an hour ago"))
        released = await harness.apply(task, Release(1))
        (again,) = await harness.claim()
        ended = await harness.apply(again, Complete(2, encode(1)))
        assert [state.updated_at for state in (noted, released, again, ended)] == [before] * 4
        assert ended.finished_at == before

    async def test_a_clock_that_jumps_ahead_expires_the_lease_but_not_the_task(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        harness.clock.advance(FOREVER)
        assert [overdue.id for overdue in await harness.store.list_overdue(now=harness.clock.now(), limit=10)] == [
            task.id
        ]
        ended = await harness.apply(task, Complete(1, encode("still in time")))
        assert ended.phase is Phase.COMPLETED

    async def test_updated_at_changes_only_with_a_change(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        harness.clock.advance(1)
        assert await harness.apply(task, Note(1)) == task
        noted = await harness.apply(task, Note(1, status_message="new"))
        assert noted.updated_at == harness.clock.now()
        harness.clock.advance(1)
        assert await harness.apply(task, Note(1, status_message="new")) == noted

    async def rich_task(self, harness: StoreHarness) -> Task:
        """Create a running task that has one of everything."""
        task = await harness.create_running()
        now = harness.clock.now()
        await harness.apply(
            task,
            Note(
                1,
                steps=(harness.step("load"),),
                input_requests=(harness.input_request("publish"),),
                artifacts=(Artifact("report", encode("draft"), now),),
                variables=encode({"n": 1}),
            ),
        )
        await harness.answer(task, {"publish": encode(1)})
        await harness.apply(task, Release(1))
        claimed = await harness.claim(limit=10)
        assert claimed[-1].attempt is not None
        assert claimed[-1].attempt.lease.expires_at == now + LEASE
        return next(running for running in claimed if running.id == task.id)


class KeyReleaseContract(StoreContractBase):
    @pytest.mark.parametrize("fields", [KEYED, OTHER_REQUEST], ids=["same request", "another request"])
    async def test_a_released_key_is_free_for_another_task(self, harness: StoreHarness, fields: dict[str, Any]) -> None:
        first = await harness.create(**KEYED)
        await harness.store.release_key(first.id, "key")
        second = await harness.create(**fields)
        assert second.id != first.id
        assert await harness.create(**fields) == second

    async def test_a_release_changes_only_the_key_of_the_task(self, harness: StoreHarness) -> None:
        task = await harness.create_running(**KEYED)
        harness.clock.advance(1)
        now = harness.clock.now()
        before = await harness.store.journal(task.id, EVERYTHING, now=now), await harness.history(task)
        await harness.store.release_key(task.id, "key")
        released = task.evolve(idempotency_key=None)
        assert await harness.load(task) == released
        after = await harness.store.journal(task.id, EVERYTHING, now=now), await harness.history(task)
        assert after[0].task == released
        assert (after[0].arguments, after[1]) == (before[0].arguments, before[1])

    async def test_a_key_that_the_task_does_not_have_is_not_released(self, harness: StoreHarness) -> None:
        first = await harness.create(**KEYED)
        other_owner = await harness.create(owner=BOB, **KEYED)
        odd = await harness.create(idempotency_key="?", request_digest="digest")
        without = await harness.create()
        for key in ("Key", "key ", "", "k", "%", "\0", "key\0"):
            await harness.store.release_key(first.id, key)
        for key in ("\ud800", "\ufffd", "\0", ""):
            await harness.store.release_key(odd.id, key)
        await harness.store.release_key(without.id, "key")
        for task_id in ("unknown", "\ud800", "", first.id.upper()):
            await harness.store.release_key(TaskId(task_id), "key")
        for task in (first, other_owner, odd, without):
            assert await harness.load(task) == task
        with pytest.raises(IdempotencyConflict):
            await harness.create(**OTHER_REQUEST)

    async def test_a_second_release_does_not_take_the_key_from_its_new_task(self, harness: StoreHarness) -> None:
        first = await harness.create(**KEYED)
        await harness.store.release_key(first.id, "key")
        second = await harness.create(**OTHER_REQUEST)
        await harness.store.release_key(first.id, "key")
        assert await harness.load(second) == second
        assert await harness.create(**OTHER_REQUEST) == second

    async def test_a_key_of_another_owner_or_namespace_stays_taken(self, harness: StoreHarness) -> None:
        first = await harness.create(**KEYED)
        other_owner = await harness.create(owner=BOB, **KEYED)
        elsewhere = await harness.create(namespace="elsewhere", **KEYED)
        await harness.store.release_key(first.id, "key")
        assert await harness.create(owner=BOB, **KEYED) == other_owner
        assert await harness.create(namespace="elsewhere", **KEYED) == elsewhere

    async def test_a_change_decided_before_the_release_commits_and_does_not_restore_the_key(
        self, harness: StoreHarness
    ) -> None:
        task = await harness.create_running(**KEYED)
        note = harness.decide(task, Note(1, status_message="working"))
        await harness.store.release_key(task.id, "key")
        second = await harness.create(**OTHER_REQUEST)
        await harness.store.commit([note])
        noted = await harness.load(task)
        assert (noted.status_message, noted.idempotency_key) == ("working", None)
        await harness.apply(noted, Complete(1, encode("done")))
        assert await harness.create(**OTHER_REQUEST) == second

    async def test_the_key_of_a_task_that_ended_can_be_released(self, harness: StoreHarness) -> None:
        task = await harness.create_running(**KEYED)
        ended = await harness.apply(task, Complete(1, encode("done")))
        await harness.store.release_key(task.id, "key")
        view = await harness.view(task)
        assert (view.task, view.outcome) == (ended.evolve(idempotency_key=None), encode("done"))
        assert (await harness.create(**KEYED)).id != task.id

    async def test_pruning_the_first_task_leaves_the_released_key_with_its_new_task(
        self, harness: StoreHarness
    ) -> None:
        first = await harness.create(**KEYED)
        await harness.store.release_key(first.id, "key")
        ended = await harness.apply(first, Cancel("alice"))
        second = await harness.create(**KEYED)
        harness.jump_to_expiry(ended)
        assert await harness.store.prune(now=harness.clock.now(), limit=10) == (first.id,)
        await harness.store.release_key(first.id, "key")
        assert await harness.create(**KEYED) == second

    async def test_a_task_without_its_key_still_counts(self, harness: StoreHarness) -> None:
        task = await harness.create(**KEYED)
        await harness.store.release_key(task.id, "key")
        for quota in (Quota(live=1), Quota(created=1)):
            with pytest.raises(QuotaExceeded):
                await harness.create(quota=quota, **KEYED)

    async def test_racing_creates_after_a_release_make_one_task(self, harness: StoreHarness) -> None:
        first = await harness.create(**KEYED)
        await harness.store.release_key(first.id, "key")
        made = await asyncio.gather(*(harness.create(**OTHER_REQUEST) for _ in range(10)))
        assert {task.id for task in made} == {made[0].id} != {first.id}

    async def test_a_create_that_races_with_a_release_gets_the_old_or_a_new_task(self, harness: StoreHarness) -> None:
        for _ in range(10):
            first = await harness.create(**KEYED)
            second, _ = await asyncio.gather(harness.create(**KEYED), harness.store.release_key(first.id, "key"))
            third = await harness.create(**KEYED)
            assert (third.id == second.id) == (second.id != first.id)
            await harness.store.release_key(third.id, "key")

    async def test_releasing_a_key_is_not_reported_by_the_change_feed(self, harness: StoreHarness) -> None:
        task = await harness.create(**KEYED)
        assert await hinted_during(harness, harness.store.release_key(task.id, "key")) == set()

    async def test_a_released_key_is_free_after_reopening(self, harness: StoreHarness) -> None:
        self.require(durable=True)
        task = await harness.create(**KEYED)
        await harness.store.release_key(task.id, "key")
        await harness.store.close()
        await harness.store.open()
        assert await harness.load(task) == task.evolve(idempotency_key=None)
        assert (await harness.create(**OTHER_REQUEST)).id != task.id

    async def test_a_key_released_by_one_handle_is_free_for_all_handles(self, handles: Handles) -> None:
        one, two = handles
        task = await one.create(**KEYED)
        await two.store.release_key(task.id, "key")
        assert (await one.create(**OTHER_REQUEST)).id != task.id
