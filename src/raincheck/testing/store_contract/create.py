"""Contract for creating tasks: durable, once per idempotency key, within quotas.

Spawned tasks are committed atomically with the change that spawns them, and within their owner's quota.
"""

import asyncio
from datetime import timedelta

import pytest

from raincheck.core.commands import Cancel, Complete, Note
from raincheck.core.create import digest_request
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import encode
from raincheck.core.policies import OnInterrupt, Retention, RetryPolicy
from raincheck.core.records import Task, Tool
from raincheck.errors import AlreadyRecorded, IdempotencyConflict, QuotaExceeded, TaskNotFound
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, NAMESPACE, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase

SAME = digest_request("build_report", {"year": 2026})
OTHER = digest_request("build_report", {"year": 2027})


class CreateContract(StoreContractBase):
    async def test_a_created_task_reads_back_exactly_as_it_was_made(self, scene: StoreHarness) -> None:
        now = scene.clock.now()
        creation = scene.creation(
            tool=Tool("build_report", "2.1"),
            parent_id="parent",
            idempotency_key="key",
            request_digest=SAME,
            priority=-7,
            due_at=now + timedelta(microseconds=1),
            deadline_at=now + timedelta(days=60, microseconds=1),
            retry=RetryPolicy(7, timedelta(milliseconds=3), 1.5, timedelta(days=40), 0.25, OnInterrupt.FAIL),
            retention=Retention(keep=timedelta(days=90), ttl=timedelta(days=60, microseconds=3)),
            caller=encode({"subject": "alice"}),
        )
        created = await scene.store.create(creation, quota=Quota(), now=now)
        journal = await scene.store.journal(created.id, EVERYTHING, now=now)
        assert created == creation.task == await scene.load(created) == journal.task
        assert (journal.arguments, journal.caller) == (creation.arguments, creation.caller)
        assert await scene.history(created) == (creation.entry,)

    async def test_a_new_task_is_queued_and_one_that_is_due_later_is_parked(self, scene: StoreHarness) -> None:
        later = scene.clock.now() + timedelta(seconds=1)
        assert (await scene.create()).phase is Phase.QUEUED
        assert (await scene.create(due_at=scene.clock.now())).phase is Phase.QUEUED
        assert (await scene.create(due_at=later)).phase is Phase.PARKED

    async def test_an_id_that_exists_is_refused_and_the_first_task_stays(self, scene: StoreHarness) -> None:
        task = await scene.create()
        with pytest.raises(AlreadyRecorded):
            await scene.create(id=task.id, owner=BOB)
        assert await scene.load(task) == task

    async def test_the_same_key_and_request_gets_the_same_task(self, scene: StoreHarness) -> None:
        first = await scene.create(idempotency_key="key", request_digest=SAME)
        scene.clock.advance(10)
        again = await scene.create(idempotency_key="key", request_digest=SAME, quota=Quota(live=1, created=1))
        assert again == first

    async def test_the_same_key_finds_a_task_that_has_ended(self, scene: StoreHarness) -> None:
        task = await scene.create_running(idempotency_key="key", request_digest=SAME)
        ended = await scene.apply(task, Complete(task.attempt_number, encode(1)))
        assert await scene.create(idempotency_key="key", request_digest=SAME) == ended

    async def test_the_same_key_for_another_request_is_a_conflict(self, scene: StoreHarness) -> None:
        first = await scene.create(idempotency_key="key", request_digest=SAME)
        with pytest.raises(IdempotencyConflict) as caught:
            await scene.create(idempotency_key="key", request_digest=OTHER)
        assert caught.value.task_id == first.id

    async def test_a_key_belongs_to_one_owner_and_one_namespace(self, scene: StoreHarness) -> None:
        first = await scene.create(idempotency_key="key", request_digest=SAME)
        theirs = await scene.create(idempotency_key="key", request_digest=OTHER, owner=BOB)
        elsewhere = await scene.create(idempotency_key="key", request_digest=OTHER, namespace="elsewhere")
        assert len({first.id, theirs.id, elsewhere.id}) == 3

    async def test_a_key_is_free_again_when_its_task_has_expired(self, scene: StoreHarness) -> None:
        first = await scene.create(idempotency_key="key", request_digest=SAME)
        ended = await scene.apply(first, Cancel("alice"))
        assert ended.expires_at is not None
        scene.clock.jump_to(ended.expires_at)
        second = await scene.create(idempotency_key="key", request_digest=OTHER)
        assert second.id != first.id
        assert await scene.load(second) == second
        with pytest.raises(TaskNotFound):
            await scene.load(first)

    async def test_what_has_expired_is_forgotten_before_its_key_is_given_to_another(self, scene: StoreHarness) -> None:
        first = await scene.create(idempotency_key="key", request_digest=SAME, retention=Retention(keep=timedelta(0)))
        await scene.apply(first, Cancel("alice"))
        quota = Quota(created=1, window=timedelta(hours=1))
        again = await scene.create(id=first.id, idempotency_key="key", request_digest=OTHER, quota=quota)
        assert (again.id, again.phase) == (first.id, Phase.QUEUED)
        assert len(await scene.history(again)) == 1

    async def test_a_create_that_is_refused_forgets_nothing(self, scene: StoreHarness) -> None:
        other = await scene.create()
        first = await scene.create(idempotency_key="key", request_digest=SAME, retention=Retention(keep=timedelta(0)))
        ended = await scene.apply(first, Cancel("alice"))
        with pytest.raises(AlreadyRecorded):
            await scene.create(id=other.id, idempotency_key="key", request_digest=OTHER)
        earlier = scene.clock.now() - timedelta(seconds=1)
        assert await scene.store.load(first.id, EVERYTHING, now=earlier) == ended

    async def test_racing_creates_with_one_key_make_one_task(self, scene: StoreHarness) -> None:
        tasks = await asyncio.gather(*(scene.create(idempotency_key="key", request_digest=SAME) for _ in range(10)))
        assert len({task.id for task in tasks}) == 1
        page_of = Scope.for_owner(NAMESPACE, ALICE)
        assert await scene.store.count_live(page_of) == {Phase.QUEUED: 1}

    async def test_the_quota_of_live_tasks_counts_what_has_not_ended(self, scene: StoreHarness) -> None:
        quota = Quota(live=2)
        first = await scene.create(quota=quota)
        await scene.create(quota=quota)
        with pytest.raises(QuotaExceeded, match="live tasks"):
            await scene.create(quota=quota)
        await scene.apply(first, Cancel("alice"))
        await scene.create(quota=quota)

    async def test_a_quota_is_each_owners_own_in_each_namespace(self, scene: StoreHarness) -> None:
        quota = Quota(live=1, created=1)
        await scene.create(quota=quota)
        await scene.create(quota=quota, owner=BOB)
        await scene.create(quota=quota, namespace="elsewhere")
        with pytest.raises(QuotaExceeded):
            await scene.create(quota=quota)

    async def test_the_quota_of_new_tasks_says_when_to_try_again(self, scene: StoreHarness) -> None:
        quota = Quota(created=2, window=timedelta(seconds=60))
        first = await scene.create(quota=quota)
        await scene.apply(first, Cancel("alice"))
        scene.clock.advance(10)
        await scene.create(quota=quota)
        scene.clock.advance(5)
        with pytest.raises(QuotaExceeded, match="new tasks") as caught:
            await scene.create(quota=quota)
        assert caught.value.retry_after == timedelta(seconds=45)
        scene.clock.advance(45)
        await scene.create(quota=quota)

    async def test_racing_creates_cannot_both_take_the_last_place(self, scene: StoreHarness) -> None:
        outcomes = await asyncio.gather(*(scene.create(quota=Quota(live=3)) for _ in range(10)), return_exceptions=True)
        assert sum(isinstance(one, Task) for one in outcomes) == 3
        assert sum(isinstance(one, QuotaExceeded) for one in outcomes) == 7

    @pytest.mark.parametrize(
        "name", ["a:b", "a/b", "a\0b", "\ud800", "💧", '"],"', "x" * 1_000, "", " ", "%", "'; DROP TABLE tasks; --"]
    )
    async def test_an_owners_name_may_have_any_characters(self, scene: StoreHarness, name: str) -> None:
        owners = [Owner.token(name, "b"), Owner.token("", name + "x"), Owner.token(name + "x", "")]
        tasks = [await scene.create(owner=owner) for owner in owners]
        for owner, task in zip(owners, tasks, strict=True):
            found = await scene.load(task, Scope.for_owner(NAMESPACE, owner))
            assert found == task
            assert await scene.store.count_live(Scope.for_owner(NAMESPACE, owner)) == {Phase.QUEUED: 1}

    async def test_the_first_entry_of_the_history_is_the_creation(self, scene: StoreHarness) -> None:
        (entry,) = await scene.history(await scene.create(actor="alice"))
        assert (entry.seq, entry.event, entry.before, entry.actor) == (1, Event.CREATE, None, "alice")


class SpawnContract(StoreContractBase):
    async def test_a_child_begins_to_exist_with_the_change_that_spawns_it(self, scene: StoreHarness) -> None:
        parent = await scene.create_running()
        child = scene.creation(parent_id=parent.id)
        spawning = decide(parent, Note(1, spawned=(child,)), scene.clock.now())
        assert spawning is not None
        with pytest.raises(TaskNotFound):
            await scene.load(child.task)
        await scene.store.commit([spawning])
        assert await scene.load(child.task) == child.task

    async def test_a_child_whose_id_exists_takes_the_whole_change_with_it(self, scene: StoreHarness) -> None:
        other = await scene.create()
        parent = await scene.create_running()
        note = Note(1, steps=(scene.step("spawn"),), spawned=(scene.creation(id=other.id),))
        with pytest.raises(AlreadyRecorded):
            await scene.apply(parent, note)
        journal = await scene.store.journal(parent.id, EVERYTHING, now=scene.clock.now())
        assert (journal.steps, journal.task) == ((), parent)

    async def test_a_successor_begins_with_the_completion_of_the_task_before_it(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        successors = (scene.creation(), scene.creation(due_at=scene.clock.now() + timedelta(seconds=1)))
        done = await scene.apply(task, Complete(1, encode("done"), spawned=successors))
        assert done.phase is Phase.COMPLETED
        one, two = successors
        assert [await scene.load(each.task) for each in successors] == [one.task, two.task]
        assert (await scene.history(task))[-1].note == f"spawned {one.task.id}, spawned {two.task.id}"
        assert [claimed.id for claimed in await scene.claim(limit=10)] == [one.task.id]

    async def test_a_completion_whose_successor_cannot_begin_is_none(self, scene: StoreHarness) -> None:
        other = await scene.create()
        task = await scene.create_running()
        successors = (scene.creation(), scene.creation(id=other.id))
        with pytest.raises(AlreadyRecorded):
            await scene.apply(task, Complete(1, encode("done"), spawned=successors))
        assert await scene.load(task) == task
        with pytest.raises(TaskNotFound):
            await scene.load(successors[0].task)

    async def test_spawned_tasks_over_the_live_quota_are_refused_whole(self, scene: StoreHarness) -> None:
        parent = await scene.create_running()
        await scene.create(owner=BOB)
        children = tuple(scene.creation(parent_id=parent.id) for _ in range(3))
        step = scene.step("spawn")
        with pytest.raises(QuotaExceeded, match="live tasks"):
            await scene.apply(parent, Note(1, steps=(step,), spawned=children, quota=Quota(live=3)))
        journal = await scene.store.journal(parent.id, EVERYTHING, now=scene.clock.now())
        assert (journal.task, journal.steps) == (parent, ())
        for child in children:
            with pytest.raises(TaskNotFound):
                await scene.load(child.task)
        await scene.apply(parent, Note(1, steps=(step,), spawned=children, quota=Quota(live=4)))
        assert [await scene.load(child.task) for child in children] == [child.task for child in children]

    async def test_a_task_that_completes_makes_room_for_its_successor(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        for count in (2, 1):
            spawned = tuple(scene.creation() for _ in range(count))
            complete = Complete(1, encode("done"), spawned=spawned, quota=Quota(live=1))
            if count > 1:
                with pytest.raises(QuotaExceeded):
                    await scene.apply(task, complete)
                assert await scene.load(task) == task
            else:
                await scene.apply(task, complete)
        assert await scene.store.count_live(EVERYTHING) == {Phase.QUEUED: 1}

    async def test_spawned_tasks_count_as_created_within_the_window(self, scene: StoreHarness) -> None:
        parent = await scene.create_running()
        quota = Quota(created=2, window=timedelta(seconds=60))
        scene.clock.advance(59)
        await scene.apply(parent, Note(1, spawned=(scene.creation(parent_id=parent.id),), quota=quota))
        with pytest.raises(QuotaExceeded, match="new tasks"):
            await scene.apply(parent, Note(1, spawned=(scene.creation(parent_id=parent.id),), quota=quota))
        scene.clock.advance(1)
        await scene.apply(parent, Note(1, spawned=(scene.creation(parent_id=parent.id),), quota=quota))
