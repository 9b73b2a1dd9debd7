"""Releasing an idempotency key: another task may have it, and nothing else changes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Note
from raincheck.core.decide import decide
from raincheck.core.limits import Quota
from raincheck.core.payload import encode
from raincheck.core.records import TaskId
from raincheck.errors import IdempotencyConflict, QuotaExceeded, StoreUnavailable
from raincheck.testing.contract.base import ContractBase
from raincheck.testing.scene import BOB, EVERYTHING, Scene, hear_until

KEYED: dict[str, Any] = {"idempotency_key": "key", "request_digest": "digest"}
OTHER: dict[str, Any] = {"idempotency_key": "key", "request_digest": "another"}


class ReleasingContract(ContractBase):
    @pytest.mark.parametrize("fields", [KEYED, OTHER], ids=["same request", "another request"])
    async def test_a_released_key_is_free_for_another_task(self, scene: Scene, fields: dict[str, Any]) -> None:
        first = await scene.create(**KEYED)
        await scene.store.release_key(first.id, "key")
        second = await scene.create(**fields)
        assert second.id != first.id
        assert await scene.create(**fields) == second

    async def test_nothing_changes_about_the_task_but_its_key(self, scene: Scene) -> None:
        task = await scene.begin(**KEYED)
        scene.clock.advance(1)
        now = scene.clock.now()
        before = await scene.store.journal(task.id, EVERYTHING, now=now), await scene.history(task)
        await scene.store.release_key(task.id, "key")
        released = task.evolve(idempotency_key=None)
        assert await scene.load(task) == released
        after = await scene.store.journal(task.id, EVERYTHING, now=now), await scene.history(task)
        assert after[0].task == released
        assert (after[0].arguments, after[1]) == (before[0].arguments, before[1])

    async def test_a_key_that_the_task_does_not_have_is_not_released(self, scene: Scene) -> None:
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

    async def test_releasing_again_does_not_take_the_key_from_who_has_it_now(self, scene: Scene) -> None:
        first = await scene.create(**KEYED)
        await scene.store.release_key(first.id, "key")
        second = await scene.create(**OTHER)
        await scene.store.release_key(first.id, "key")
        assert await scene.load(second) == second
        assert await scene.create(**OTHER) == second

    async def test_a_key_of_another_owner_or_namespace_stays_taken(self, scene: Scene) -> None:
        first = await scene.create(**KEYED)
        theirs = await scene.create(owner=BOB, **KEYED)
        elsewhere = await scene.create(namespace="elsewhere", **KEYED)
        await scene.store.release_key(first.id, "key")
        assert await scene.create(owner=BOB, **KEYED) == theirs
        assert await scene.create(namespace="elsewhere", **KEYED) == elsewhere

    async def test_a_change_that_was_decided_before_holds_and_does_not_bring_the_key_back(self, scene: Scene) -> None:
        task = await scene.begin(**KEYED)
        note = decide(task, Note(1, status_message="working"), scene.clock.now())
        assert note is not None
        await scene.store.release_key(task.id, "key")
        second = await scene.create(**OTHER)
        await scene.store.commit([note])
        noted = await scene.load(task)
        assert (noted.status_message, noted.idempotency_key) == ("working", None)
        await scene.do(noted, Complete(1, encode("done")))
        assert await scene.create(**OTHER) == second

    async def test_the_key_of_a_task_that_ended_can_be_released(self, scene: Scene) -> None:
        task = await scene.begin(**KEYED)
        ended = await scene.do(task, Complete(1, encode("done")))
        await scene.store.release_key(task.id, "key")
        view = await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())
        assert (view.task, view.outcome) == (ended.evolve(idempotency_key=None), encode("done"))
        assert (await scene.create(**KEYED)).id != task.id

    async def test_who_has_the_key_now_keeps_it_when_the_first_is_forgotten(self, scene: Scene) -> None:
        first = await scene.create(**KEYED)
        await scene.store.release_key(first.id, "key")
        ended = await scene.do(first, Cancel("alice"))
        second = await scene.create(**KEYED)
        assert ended.expires_at is not None
        scene.clock.jump_to(ended.expires_at)
        assert await scene.store.prune(now=scene.clock.now(), limit=10) == (first.id,)
        await scene.store.release_key(first.id, "key")
        assert await scene.create(**KEYED) == second

    async def test_a_task_without_its_key_still_counts(self, scene: Scene) -> None:
        task = await scene.create(**KEYED)
        await scene.store.release_key(task.id, "key")
        for quota in (Quota(live=1), Quota(created=1)):
            with pytest.raises(QuotaExceeded):
                await scene.create(quota=quota, **KEYED)

    async def test_racing_creates_after_a_release_make_one_task(self, scene: Scene) -> None:
        first = await scene.create(**KEYED)
        await scene.store.release_key(first.id, "key")
        made = await asyncio.gather(*(scene.create(**OTHER) for _ in range(10)))
        assert {task.id for task in made} == {made[0].id} != {first.id}

    async def test_a_create_that_races_with_a_release_gets_the_one_or_the_other(self, scene: Scene) -> None:
        for _ in range(10):
            first = await scene.create(**KEYED)
            second, _ = await asyncio.gather(scene.create(**KEYED), scene.store.release_key(first.id, "key"))
            third = await scene.create(**KEYED)
            assert (third.id == second.id) == (second.id != first.id)
            await scene.store.release_key(third.id, "key")

    async def test_a_released_key_is_not_news(self, scene: Scene) -> None:
        task = await scene.create(**KEYED)
        with scene.store.listen() as feed:
            await scene.store.release_key(task.id, "key")
            last = await scene.create()
            news = await hear_until(feed, last.id)
        assert news == {last.id}

    async def test_a_released_key_is_free_after_reopening(self, scene: Scene) -> None:
        self.need(durable=True)
        task = await scene.create(**KEYED)
        await scene.store.release_key(task.id, "key")
        await scene.store.close()
        await scene.store.open()
        assert await scene.load(task) == task.evolve(idempotency_key=None)
        assert (await scene.create(**OTHER)).id != task.id

    async def test_a_key_that_one_handle_released_is_free_for_all(self, tmp_path: Path, scene: Scene) -> None:
        self.need(shared=True)
        task = await scene.create(**KEYED)
        async with self.opened(tmp_path) as other:
            await other.release_key(task.id, "key")
        assert (await scene.create(**OTHER)).id != task.id

    async def test_a_store_that_is_not_open_releases_nothing(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        with pytest.raises(StoreUnavailable, match="open it"):
            await store.release_key(TaskId("task"), "key")
