"""Contract for creating tasks: durable, once per idempotency key, within quotas.

Spawned tasks are committed atomically with the change that spawns them, and within their owner's quota.
"""

import asyncio
from datetime import timedelta

import pytest

from raincheck.core.commands import Cancel, Complete, Note
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.policies import OnInterrupt, Quota, Retention, RetryPolicy
from raincheck.core.records import Task, Tool
from raincheck.core.values import encode
from raincheck.errors import AlreadyRecorded, IdempotencyConflict, QuotaExceeded, TaskNotFound
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, KEYED, NAMESPACE, OTHER_REQUEST, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase


class CreateContract(StoreContractBase):
    async def test_a_created_task_is_read_back_unchanged(self, harness: StoreHarness) -> None:
        now = harness.clock.now()
        creation = harness.creation(
            tool=Tool("build_report", "2.1"),
            parent_id="parent",
            **KEYED,
            priority=-7,
            due_at=now + timedelta(microseconds=1),
            deadline_at=now + timedelta(days=60, microseconds=1),
            retry=RetryPolicy(7, timedelta(milliseconds=3), 1.5, timedelta(days=40), 0.25, OnInterrupt.FAIL),
            retention=Retention(keep=timedelta(days=90), ttl=timedelta(days=60, microseconds=3)),
            caller=encode({"subject": "alice"}),
        )
        created = await harness.store.create(creation, quota=Quota(), now=now)
        journal = await harness.store.journal(created.id, EVERYTHING, now=now)
        assert created == creation.task == await harness.load(created) == journal.task
        assert (journal.arguments, journal.caller) == (creation.arguments, creation.caller)
        assert await harness.history(created) == (creation.entry,)

    async def test_a_new_task_is_queued_and_one_that_is_due_later_is_parked(self, harness: StoreHarness) -> None:
        later = harness.clock.now() + timedelta(seconds=1)
        assert (await harness.create()).phase is Phase.QUEUED
        assert (await harness.create(due_at=harness.clock.now())).phase is Phase.QUEUED
        assert (await harness.create(due_at=later)).phase is Phase.PARKED

    async def test_an_existing_id_is_rejected_and_its_task_is_unchanged(self, harness: StoreHarness) -> None:
        task = await harness.create()
        with pytest.raises(AlreadyRecorded):
            await harness.create(id=task.id, owner=BOB)
        assert await harness.load(task) == task

    async def test_the_same_key_and_request_gets_the_same_task(self, harness: StoreHarness) -> None:
        first = await harness.create(**KEYED)
        harness.clock.advance(10)
        again = await harness.create(quota=Quota(live=1, created=1), **KEYED)
        assert again == first

    async def test_the_same_key_finds_a_task_that_has_ended(self, harness: StoreHarness) -> None:
        task = await harness.create_running(**KEYED)
        ended = await harness.apply(task, Complete(task.attempt_number, encode(1)))
        assert await harness.create(**KEYED) == ended

    async def test_the_same_key_for_another_request_is_a_conflict(self, harness: StoreHarness) -> None:
        first = await harness.create(**KEYED)
        with pytest.raises(IdempotencyConflict) as caught:
            await harness.create(**OTHER_REQUEST)
        assert caught.value.task_id == first.id

    async def test_a_key_belongs_to_one_owner_and_one_namespace(self, harness: StoreHarness) -> None:
        first = await harness.create(**KEYED)
        other_owner = await harness.create(owner=BOB, **OTHER_REQUEST)
        elsewhere = await harness.create(namespace="elsewhere", **OTHER_REQUEST)
        assert len({first.id, other_owner.id, elsewhere.id}) == 3

    async def test_a_key_can_be_reused_once_its_task_has_expired(self, harness: StoreHarness) -> None:
        first = await harness.create(**KEYED)
        ended = await harness.apply(first, Cancel("alice"))
        harness.jump_to_expiry(ended)
        second = await harness.create(**OTHER_REQUEST)
        assert second.id != first.id
        assert await harness.load(second) == second
        with pytest.raises(TaskNotFound):
            await harness.load(first)

    async def test_an_expired_task_is_deleted_before_its_key_is_reused(self, harness: StoreHarness) -> None:
        first = await harness.create(retention=Retention(keep=timedelta(0)), **KEYED)
        await harness.apply(first, Cancel("alice"))
        quota = Quota(created=1, window=timedelta(hours=1))
        again = await harness.create(id=first.id, quota=quota, **OTHER_REQUEST)
        assert (again.id, again.phase) == (first.id, Phase.QUEUED)
        assert len(await harness.history(again)) == 1

    async def test_a_rejected_create_deletes_nothing(self, harness: StoreHarness) -> None:
        other = await harness.create()
        first = await harness.create(retention=Retention(keep=timedelta(0)), **KEYED)
        ended = await harness.apply(first, Cancel("alice"))
        with pytest.raises(AlreadyRecorded):
            await harness.create(id=other.id, **OTHER_REQUEST)
        earlier = harness.clock.now() - timedelta(seconds=1)
        assert await harness.store.load(first.id, EVERYTHING, now=earlier) == ended

    async def test_racing_creates_with_one_key_make_one_task(self, harness: StoreHarness) -> None:
        tasks = await asyncio.gather(*(harness.create(**KEYED) for _ in range(10)))
        assert len({task.id for task in tasks}) == 1
        scope = Scope.for_owner(NAMESPACE, ALICE)
        assert await harness.store.count_live(scope) == {Phase.QUEUED: 1}

    async def test_the_live_quota_counts_tasks_that_have_not_ended(self, harness: StoreHarness) -> None:
        quota = Quota(live=2)
        first = await harness.create(quota=quota)
        await harness.create(quota=quota)
        with pytest.raises(QuotaExceeded, match="live tasks"):
            await harness.create(quota=quota)
        await harness.apply(first, Cancel("alice"))
        await harness.create(quota=quota)

    async def test_quotas_count_per_owner_and_namespace(self, harness: StoreHarness) -> None:
        quota = Quota(live=1, created=1)
        await harness.create(quota=quota)
        await harness.create(quota=quota, owner=BOB)
        await harness.create(quota=quota, namespace="elsewhere")
        with pytest.raises(QuotaExceeded):
            await harness.create(quota=quota)

    async def test_the_creation_quota_reports_when_to_retry(self, harness: StoreHarness) -> None:
        quota = Quota(created=2, window=timedelta(seconds=60))
        first = await harness.create(quota=quota)
        await harness.apply(first, Cancel("alice"))
        harness.clock.advance(10)
        await harness.create(quota=quota)
        harness.clock.advance(5)
        with pytest.raises(QuotaExceeded, match="new tasks") as caught:
            await harness.create(quota=quota)
        assert caught.value.retry_after == timedelta(seconds=45)
        harness.clock.advance(45)
        await harness.create(quota=quota)

    async def test_racing_creates_do_not_exceed_the_live_quota(self, harness: StoreHarness) -> None:
        outcomes = await asyncio.gather(
            *(harness.create(quota=Quota(live=3)) for _ in range(10)), return_exceptions=True
        )
        assert sum(isinstance(outcome, Task) for outcome in outcomes) == 3
        assert sum(isinstance(outcome, QuotaExceeded) for outcome in outcomes) == 7

    @pytest.mark.parametrize(
        "name", ["a:b", "a/b", "a\0b", "\ud800", "💧", '"],"', "x" * 1_000, "", " ", "%", "'; DROP TABLE tasks; --"]
    )
    async def test_an_owners_name_may_have_any_characters(self, harness: StoreHarness, name: str) -> None:
        owners = [Owner.token(name, "b"), Owner.token("", name + "x"), Owner.token(name + "x", "")]
        tasks = [await harness.create(owner=owner) for owner in owners]
        for owner, task in zip(owners, tasks, strict=True):
            found = await harness.load(task, Scope.for_owner(NAMESPACE, owner))
            assert found == task
            assert await harness.store.count_live(Scope.for_owner(NAMESPACE, owner)) == {Phase.QUEUED: 1}

    async def test_the_first_entry_of_the_history_is_the_creation(self, harness: StoreHarness) -> None:
        (entry,) = await harness.history(await harness.create(actor="alice"))
        assert (entry.seq, entry.event, entry.before, entry.actor) == (1, Event.CREATE, None, "alice")


class SpawnContract(StoreContractBase):
    async def test_a_child_is_created_with_the_change_that_spawns_it(self, harness: StoreHarness) -> None:
        parent = await harness.create_running()
        child = harness.creation(parent_id=parent.id)
        spawning = harness.decide(parent, Note(1, spawned=(child,)))
        with pytest.raises(TaskNotFound):
            await harness.load(child.task)
        await harness.store.commit([spawning])
        assert await harness.load(child.task) == child.task

    async def test_a_child_whose_id_exists_fails_the_whole_change(self, harness: StoreHarness) -> None:
        other = await harness.create()
        parent = await harness.create_running()
        note = Note(1, steps=(harness.step("spawn"),), spawned=(harness.creation(id=other.id),))
        with pytest.raises(AlreadyRecorded):
            await harness.apply(parent, note)
        journal = await harness.journal(parent)
        assert (journal.steps, journal.task) == ((), parent)

    async def test_a_successor_is_created_with_the_completion_of_its_predecessor(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        successors = (harness.creation(), harness.creation(due_at=harness.clock.now() + timedelta(seconds=1)))
        done = await harness.apply(task, Complete(1, encode("done"), spawned=successors))
        assert done.phase is Phase.COMPLETED
        one, two = successors
        assert [await harness.load(each.task) for each in successors] == [one.task, two.task]
        assert (await harness.history(task))[-1].note == f"spawned {one.task.id}, spawned {two.task.id}"
        assert [claimed.id for claimed in await harness.claim(limit=10)] == [one.task.id]

    async def test_a_completion_fails_if_its_successor_cannot_be_created(self, harness: StoreHarness) -> None:
        other = await harness.create()
        task = await harness.create_running()
        successors = (harness.creation(), harness.creation(id=other.id))
        with pytest.raises(AlreadyRecorded):
            await harness.apply(task, Complete(1, encode("done"), spawned=successors))
        assert await harness.load(task) == task
        with pytest.raises(TaskNotFound):
            await harness.load(successors[0].task)

    async def test_a_change_that_spawns_tasks_over_the_live_quota_is_rejected_as_a_whole(
        self, harness: StoreHarness
    ) -> None:
        parent = await harness.create_running()
        await harness.create(owner=BOB)
        children = tuple(harness.creation(parent_id=parent.id) for _ in range(3))
        step = harness.step("spawn")
        with pytest.raises(QuotaExceeded, match="live tasks"):
            await harness.apply(parent, Note(1, steps=(step,), spawned=children, quota=Quota(live=3)))
        journal = await harness.journal(parent)
        assert (journal.task, journal.steps) == (parent, ())
        for child in children:
            with pytest.raises(TaskNotFound):
                await harness.load(child.task)
        await harness.apply(parent, Note(1, steps=(step,), spawned=children, quota=Quota(live=4)))
        assert [await harness.load(child.task) for child in children] == [child.task for child in children]

    async def test_a_task_that_completes_makes_room_for_its_successor(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        for count in (2, 1):
            spawned = tuple(harness.creation() for _ in range(count))
            complete = Complete(1, encode("done"), spawned=spawned, quota=Quota(live=1))
            if count > 1:
                with pytest.raises(QuotaExceeded):
                    await harness.apply(task, complete)
                assert await harness.load(task) == task
            else:
                await harness.apply(task, complete)
        assert await harness.store.count_live(EVERYTHING) == {Phase.QUEUED: 1}

    async def test_spawned_tasks_count_as_created_within_the_window(self, harness: StoreHarness) -> None:
        parent = await harness.create_running()
        quota = Quota(created=2, window=timedelta(seconds=60))
        harness.clock.advance(59)
        await harness.apply(parent, Note(1, spawned=(harness.creation(parent_id=parent.id),), quota=quota))
        with pytest.raises(QuotaExceeded, match="new tasks"):
            await harness.apply(parent, Note(1, spawned=(harness.creation(parent_id=parent.id),), quota=quota))
        harness.clock.advance(1)
        await harness.apply(parent, Note(1, spawned=(harness.creation(parent_id=parent.id),), quota=quota))
