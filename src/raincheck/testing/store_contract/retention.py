"""Contract for retention and for releasing idempotency keys.

Retention is honest, exact, and not disturbed by a clock that jumps. A released idempotency key can be used by another
task, and nothing else changes.
"""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Release
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.payload import encode
from raincheck.core.policies import Retention
from raincheck.core.records import Artifact, Task, TaskId
from raincheck.errors import IdempotencyConflict, QuotaExceeded, StoreUnavailable, TaskNotFound
from raincheck.stores.commit import answer
from raincheck.testing.harness import BOB, EVERYTHING, LEASE, StoreHarness, wait_for_hint
from raincheck.testing.store_contract.base import StoreContractBase

FOREVER = 3_000_000_000.0
"""Seconds: about 95 years, and more milliseconds than 32 bits hold."""


class RetentionContract(StoreContractBase):
    async def test_a_live_task_never_expires(self, scene: StoreHarness) -> None:
        queued = await scene.create(retention=Retention(keep=timedelta(0), ttl=timedelta(0)))
        paused = await scene.apply(await scene.create(), Pause("operator"))
        parked = await scene.create_running(retention=Retention(keep=timedelta(0)))
        parked = await scene.apply(parked, Park(1, seen_signals=0))
        scene.clock.advance(FOREVER)
        assert await scene.store.prune(now=scene.clock.now(), limit=10) == ()
        for task in (queued, paused, parked):
            assert (await scene.load(task)).id == task.id

    async def test_an_ended_task_is_kept_from_its_end_and_not_from_its_creation(self, scene: StoreHarness) -> None:
        task = await scene.create_running(retention=Retention(keep=timedelta(hours=1)))
        scene.clock.advance(1_000_000)
        ended = await scene.apply(task, Complete(1, encode(1)))
        assert ended.expires_at == scene.clock.now() + timedelta(hours=1)
        assert await scene.store.prune(now=scene.clock.now(), limit=10) == ()

    async def test_a_promised_ttl_is_kept_even_if_the_task_ends_early(self, scene: StoreHarness) -> None:
        retention = Retention(keep=timedelta(hours=1), ttl=timedelta(days=30))
        task = await scene.create_running(retention=retention)
        ended = await scene.apply(task, Complete(1, encode(1)))
        assert ended.ttl == timedelta(days=30)
        scene.clock.advance(timedelta(days=30).total_seconds() - 1)
        assert (await scene.load(task)) == ended

    async def test_a_month_survives_in_every_duration(self, scene: StoreHarness) -> None:
        month = timedelta(days=31, microseconds=1)
        task = await scene.create_running(
            retention=Retention(keep=month), deadline_at=scene.clock.now() + month, due_at=scene.clock.now()
        )
        assert task.ttl == 2 * month
        ended = await scene.apply(task, Complete(1, encode(1)))
        assert (await scene.load(task)).ttl == ended.ttl == month

    async def test_the_ttl_never_says_less_than_the_task_may_run(self, scene: StoreHarness) -> None:
        deadline = scene.clock.now() + timedelta(hours=5)
        bounded = await scene.create(deadline_at=deadline, retention=Retention(keep=timedelta(hours=1)))
        assert bounded.ttl == timedelta(hours=6)
        assert (await scene.create(retention=Retention(ttl=timedelta(hours=1)))).ttl is None

    async def test_pruning_forgets_everything_that_belongs_to_a_task(self, scene: StoreHarness) -> None:
        task = await self.rich_task(scene)
        ended = await scene.apply(task, Complete(2, encode(1)))
        kept = await self.rich_task(scene)
        assert ended.expires_at is not None
        now = scene.clock.jump_to(ended.expires_at)
        assert await scene.store.prune(now=now, limit=10) == (task.id,)
        assert await scene.store.prune(now=now, limit=10) == ()
        with pytest.raises(TaskNotFound):
            await scene.load(task)
        assert await scene.load(kept) == kept
        # The id is free again, and a new task with that id starts empty.
        await scene.create(id=task.id)
        journal = await scene.store.journal(task.id, EVERYTHING, now=now)
        assert (journal.steps, journal.inputs, journal.artifacts, journal.variables) == ((), (), (), None)
        assert len(await scene.history(task)) == 1

    async def test_pruning_takes_no_more_than_asked(self, scene: StoreHarness) -> None:
        for _ in range(5):
            await scene.apply(await scene.create(), Cancel("alice"))
        scene.clock.advance(FOREVER / 100)
        sizes = [len(await scene.store.prune(now=scene.clock.now(), limit=2)) for _ in range(4)]
        assert sizes == [2, 2, 1, 0]

    async def test_what_has_ended_can_be_forgotten_before_it_expires(self, scene: StoreHarness) -> None:
        gone = await self.rich_task(scene)
        await scene.apply(gone, Complete(2, encode(1)))
        kept = await scene.apply(await scene.create(), Cancel("alice"))
        with scene.store.listen() as feed:
            assert await scene.store.prune(now=scene.clock.now(), limit=10, only=[gone.id]) == (gone.id,)
            await wait_for_hint(feed, gone.id)
        with pytest.raises(TaskNotFound):
            await scene.load(gone)
        assert await scene.load(kept) == kept
        await scene.create(id=gone.id)
        assert len(await scene.history(gone)) == 1

    async def test_what_lives_or_is_not_there_is_not_forgotten_whoever_names_it(self, scene: StoreHarness) -> None:
        live = [await scene.apply(await scene.create_running(), Park(1, seen_signals=0)), await scene.create_running()]
        live += [await scene.apply(await scene.create(), Pause("operator")), await scene.create()]
        ids = [task.id for task in live] + [TaskId("nobody"), TaskId(f"{live[0].id}\0"), TaskId("\ud800")]
        assert await scene.store.prune(now=scene.clock.advance(FOREVER), limit=10, only=ids) == ()
        assert [await scene.load(task) for task in live] == live

    async def test_naming_tasks_prunes_no_others_and_no_more_than_asked(self, scene: StoreHarness) -> None:
        ended = [await scene.apply(await scene.create(), Cancel("alice")) for _ in range(5)]
        now, ids = scene.clock.advance(FOREVER / 100), [task.id for task in ended]
        assert await scene.store.prune(now=now, limit=10, only=[]) == ()
        assert set(await scene.store.prune(now=now, limit=10, only=[ids[1], ids[1], ids[4]])) == {ids[1], ids[4]}
        assert len(await scene.store.prune(now=now, limit=2, only=ids)) == 2
        assert len(await scene.store.prune(now=now, limit=0, only=ids)) == 1
        assert await scene.store.prune(now=now, limit=10, only=ids) == ()

    async def test_a_clock_that_jumps_back_does_not_take_the_task_with_it(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        before = scene.clock.now()
        scene.clock.advance(-3_600)
        noted = await scene.apply(task, Note(1, status_message="an hour ago"))
        released = await scene.apply(task, Release(1))
        (again,) = await scene.claim()
        ended = await scene.apply(again, Complete(2, encode(1)))
        assert [one.updated_at for one in (noted, released, again, ended)] == [before] * 4
        assert ended.finished_at == before

    async def test_a_clock_that_jumps_ahead_costs_a_lease_and_not_the_task(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        scene.clock.advance(FOREVER)
        assert [one.id for one in await scene.store.list_overdue(now=scene.clock.now(), limit=10)] == [task.id]
        ended = await scene.apply(task, Complete(1, encode("still in time")))
        assert ended.phase is Phase.COMPLETED

    async def test_nothing_touches_the_time_of_the_last_change_but_a_change(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        scene.clock.advance(1)
        assert await scene.apply(task, Note(1)) == task
        noted = await scene.apply(task, Note(1, status_message="new"))
        assert noted.updated_at == scene.clock.now()
        scene.clock.advance(1)
        assert await scene.apply(task, Note(1, status_message="new")) == noted

    async def rich_task(self, scene: StoreHarness) -> Task:
        """Create a running task that has one of everything."""
        task = await scene.create_running()
        now = scene.clock.now()
        await scene.apply(
            task,
            Note(
                1,
                steps=(scene.step("load"),),
                input_requests=(scene.input_request("publish"),),
                artifacts=(Artifact("report", encode("draft"), now),),
                variables=encode({"n": 1}),
            ),
        )
        await answer(scene.store, task.id, EVERYTHING, {"publish": encode(1)}, actor="alice", now=now)
        await scene.apply(task, Release(1))
        claimed = await scene.claim(limit=10)
        assert claimed[-1].attempt is not None
        assert claimed[-1].attempt.lease.expires_at == now + LEASE
        return next(one for one in claimed if one.id == task.id)


KEYED: dict[str, Any] = {"idempotency_key": "key", "request_digest": "digest"}
OTHER: dict[str, Any] = {"idempotency_key": "key", "request_digest": "another"}


class KeyReleaseContract(StoreContractBase):
    @pytest.mark.parametrize("fields", [KEYED, OTHER], ids=["same request", "another request"])
    async def test_a_released_key_is_free_for_another_task(self, scene: StoreHarness, fields: dict[str, Any]) -> None:
        first = await scene.create(**KEYED)
        await scene.store.release_key(first.id, "key")
        second = await scene.create(**fields)
        assert second.id != first.id
        assert await scene.create(**fields) == second

    async def test_nothing_changes_about_the_task_but_its_key(self, scene: StoreHarness) -> None:
        task = await scene.create_running(**KEYED)
        scene.clock.advance(1)
        now = scene.clock.now()
        before = await scene.store.journal(task.id, EVERYTHING, now=now), await scene.history(task)
        await scene.store.release_key(task.id, "key")
        released = task.evolve(idempotency_key=None)
        assert await scene.load(task) == released
        after = await scene.store.journal(task.id, EVERYTHING, now=now), await scene.history(task)
        assert after[0].task == released
        assert (after[0].arguments, after[1]) == (before[0].arguments, before[1])

    async def test_a_key_that_the_task_does_not_have_is_not_released(self, scene: StoreHarness) -> None:
        first = await scene.create(**KEYED)
        theirs = await scene.create(owner=BOB, **KEYED)
        odd = await scene.create(idempotency_key="?", request_digest="digest")
        without = await scene.create()
        for key in ("Key", "key ", "", "k", "%", "\0", "key\0"):
            await scene.store.release_key(first.id, key)
        for key in ("\ud800", "\ufffd", "\0", ""):
            await scene.store.release_key(odd.id, key)
        await scene.store.release_key(without.id, "key")
        for task_id in ("unknown", "\ud800", "", first.id.upper()):
            await scene.store.release_key(TaskId(task_id), "key")
        for task in (first, theirs, odd, without):
            assert await scene.load(task) == task
        with pytest.raises(IdempotencyConflict):
            await scene.create(**OTHER)

    async def test_releasing_again_does_not_take_the_key_from_who_has_it_now(self, scene: StoreHarness) -> None:
        first = await scene.create(**KEYED)
        await scene.store.release_key(first.id, "key")
        second = await scene.create(**OTHER)
        await scene.store.release_key(first.id, "key")
        assert await scene.load(second) == second
        assert await scene.create(**OTHER) == second

    async def test_a_key_of_another_owner_or_namespace_stays_taken(self, scene: StoreHarness) -> None:
        first = await scene.create(**KEYED)
        theirs = await scene.create(owner=BOB, **KEYED)
        elsewhere = await scene.create(namespace="elsewhere", **KEYED)
        await scene.store.release_key(first.id, "key")
        assert await scene.create(owner=BOB, **KEYED) == theirs
        assert await scene.create(namespace="elsewhere", **KEYED) == elsewhere

    async def test_a_change_that_was_decided_before_holds_and_does_not_bring_the_key_back(
        self, scene: StoreHarness
    ) -> None:
        task = await scene.create_running(**KEYED)
        note = decide(task, Note(1, status_message="working"), scene.clock.now())
        assert note is not None
        await scene.store.release_key(task.id, "key")
        second = await scene.create(**OTHER)
        await scene.store.commit([note])
        noted = await scene.load(task)
        assert (noted.status_message, noted.idempotency_key) == ("working", None)
        await scene.apply(noted, Complete(1, encode("done")))
        assert await scene.create(**OTHER) == second

    async def test_the_key_of_a_task_that_ended_can_be_released(self, scene: StoreHarness) -> None:
        task = await scene.create_running(**KEYED)
        ended = await scene.apply(task, Complete(1, encode("done")))
        await scene.store.release_key(task.id, "key")
        view = await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())
        assert (view.task, view.outcome) == (ended.evolve(idempotency_key=None), encode("done"))
        assert (await scene.create(**KEYED)).id != task.id

    async def test_who_has_the_key_now_keeps_it_when_the_first_is_forgotten(self, scene: StoreHarness) -> None:
        first = await scene.create(**KEYED)
        await scene.store.release_key(first.id, "key")
        ended = await scene.apply(first, Cancel("alice"))
        second = await scene.create(**KEYED)
        assert ended.expires_at is not None
        scene.clock.jump_to(ended.expires_at)
        assert await scene.store.prune(now=scene.clock.now(), limit=10) == (first.id,)
        await scene.store.release_key(first.id, "key")
        assert await scene.create(**KEYED) == second

    async def test_a_task_without_its_key_still_counts(self, scene: StoreHarness) -> None:
        task = await scene.create(**KEYED)
        await scene.store.release_key(task.id, "key")
        for quota in (Quota(live=1), Quota(created=1)):
            with pytest.raises(QuotaExceeded):
                await scene.create(quota=quota, **KEYED)

    async def test_racing_creates_after_a_release_make_one_task(self, scene: StoreHarness) -> None:
        first = await scene.create(**KEYED)
        await scene.store.release_key(first.id, "key")
        made = await asyncio.gather(*(scene.create(**OTHER) for _ in range(10)))
        assert {task.id for task in made} == {made[0].id} != {first.id}

    async def test_a_create_that_races_with_a_release_gets_the_one_or_the_other(self, scene: StoreHarness) -> None:
        for _ in range(10):
            first = await scene.create(**KEYED)
            second, _ = await asyncio.gather(scene.create(**KEYED), scene.store.release_key(first.id, "key"))
            third = await scene.create(**KEYED)
            assert (third.id == second.id) == (second.id != first.id)
            await scene.store.release_key(third.id, "key")

    async def test_a_released_key_is_not_news(self, scene: StoreHarness) -> None:
        task = await scene.create(**KEYED)
        with scene.store.listen() as feed:
            await scene.store.release_key(task.id, "key")
            last = await scene.create()
            news = await wait_for_hint(feed, last.id)
        assert news == {last.id}

    async def test_a_released_key_is_free_after_reopening(self, scene: StoreHarness) -> None:
        self.require(durable=True)
        task = await scene.create(**KEYED)
        await scene.store.release_key(task.id, "key")
        await scene.store.close()
        await scene.store.open()
        assert await scene.load(task) == task.evolve(idempotency_key=None)
        assert (await scene.create(**OTHER)).id != task.id

    async def test_a_key_that_one_handle_released_is_free_for_all(self, tmp_path: Path, scene: StoreHarness) -> None:
        self.require(shared=True)
        task = await scene.create(**KEYED)
        async with self.open_store(tmp_path) as other:
            await other.release_key(task.id, "key")
        assert (await scene.create(**OTHER)).id != task.id

    async def test_a_store_that_is_not_open_releases_nothing(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        with pytest.raises(StoreUnavailable, match="open it"):
            await store.release_key(TaskId("task"), "key")
