"""Contract for direct start: creating a task may claim it in the same call, unless that overtakes another task."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Owner
from raincheck.core.payload import encode
from raincheck.core.policies import Retention
from raincheck.core.records import Attempt, Lease, Task, TaskId, Tool
from raincheck.errors import AlreadyRecorded, IdempotencyConflict, QuotaExceeded, TaskNotFound
from raincheck.stores.requests import ClaimRequest, HeldAttempt
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, LEASE, NAMESPACE, TOOL, StoreHarness, wait_for_hint
from raincheck.testing.store_contract.base import StoreContractBase

OTHER = Tool("other")
OFFER = ClaimRequest(NAMESPACE, frozenset({TOOL, Tool("third")}), "creator", LEASE, 1)
MOMENT = timedelta(microseconds=1)

KEYED: dict[str, Any] = {"idempotency_key": "key", "request_digest": "digest"}


class DirectStartContract(StoreContractBase):
    @pytest.fixture
    def offer(self) -> ClaimRequest:
        self.require(supports_direct_start=True)
        return OFFER

    async def test_an_offer_begins_the_new_task_at_once(self, scene: StoreHarness, offer: ClaimRequest) -> None:
        creation = scene.creation(caller=encode("alice"), actor="alice")
        now = scene.clock.now()
        task = await scene.store.create(creation, quota=Quota(live=1, created=1), now=now, claim=offer)
        assert (task.id, task.phase, task.attempt_number, task.version) == (creation.task.id, Phase.RUNNING, 1, 2)
        assert task.attempt == Attempt(1, now, Lease("creator", now + LEASE))
        journal = await scene.store.journal(task.id, EVERYTHING, now=now)
        assert await scene.load(task) == task == journal.task
        assert (journal.arguments, journal.caller) == (creation.arguments, creation.caller)
        first, second = await scene.history(task)
        assert first == creation.entry
        assert (second.seq, second.event, second.actor, second.attempt) == (2, Event.CLAIM, "creator", 1)

    async def test_a_task_that_an_offer_begins_is_as_if_it_had_been_claimed(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        fields: dict[str, Any] = {"priority": 3, "deadline_at": scene.clock.now() + timedelta(days=1), **KEYED}
        offered = await scene.create(claim=offer, **fields)
        apart = await scene.create(owner=BOB, **fields)
        (claimed,) = await scene.claim(holder="creator")
        assert claimed.id == apart.id
        assert offered == replace(claimed, id=offered.id, owner=ALICE)
        assert await scene.history(offered) == await scene.history(claimed)

    async def test_a_task_that_an_offer_began_goes_on_like_any_other(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        task = await scene.create(claim=offer)
        until = scene.clock.advance(1) + LEASE
        assert await scene.store.extend_leases([HeldAttempt(task.id, 1)], until=until) == frozenset()
        await scene.apply(task, Note(1, steps=(scene.step("load"),)))
        assert await scene.store.list_overdue(now=until, limit=10) == (await scene.load(task),)
        ended = await scene.apply(task, Complete(1, encode("done")))
        assert (ended.phase, ended.entries) == (Phase.COMPLETED, 4)

    async def test_what_an_offer_began_is_not_for_the_next_claim(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        task = await scene.create(claim=offer)
        assert await scene.store.next_due(NAMESPACE, offer.tools) is None
        assert await scene.claim(limit=10) == ()
        assert await scene.store.count_live(EVERYTHING) == {Phase.RUNNING: 1}
        assert await scene.load(task) == task

    @pytest.mark.parametrize("waiting", [{}, {"tool": Tool("third")}, {"owner": BOB}, {"priority": -1}], ids=str)
    async def test_an_offer_does_not_overtake_what_is_queued(
        self, scene: StoreHarness, waiting: dict[str, Any]
    ) -> None:
        first = await scene.create(**waiting)
        second = await scene.create(claim=OFFER)
        assert (second.phase, second.attempt, await scene.load(second)) == (Phase.QUEUED, None, second)
        assert len(await scene.history(second)) == 1
        claimed = await scene.store.claim(replace(OFFER, limit=2), now=scene.clock.now())
        assert {task.id for task in claimed} == {first.id, second.id}

    async def test_an_offer_does_not_overtake_what_is_due(self, scene: StoreHarness, offer: ClaimRequest) -> None:
        due_at = scene.clock.now() + timedelta(seconds=60)
        waiting = await scene.create(due_at=due_at)
        scene.clock.jump_to(due_at - MOMENT)
        assert (await scene.create(claim=offer)).phase is Phase.RUNNING
        scene.clock.jump_to(due_at)
        late = await scene.create(claim=offer)
        assert late.phase is Phase.QUEUED
        assert await scene.load(waiting) == waiting
        assert {task.id for task in await scene.claim(limit=2)} == {waiting.id, late.id}

    async def test_an_offer_need_not_wait_for_what_it_could_not_run(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        await scene.apply(await scene.create(), Pause("operator"))
        parked = await scene.create_running()
        await scene.apply(parked, Park(1, seen_signals=0))
        await scene.apply(await scene.create_running(), Complete(1, encode("done")))
        running = await scene.create_running()
        await scene.create(namespace="elsewhere")
        await scene.create(tool=OTHER, due_at=scene.clock.now() + MOMENT)
        await scene.create(tool=OTHER)
        await scene.create(tool=Tool(TOOL.name, "2"), priority=9)
        scene.clock.advance(1)
        assert (await scene.create(claim=offer)).phase is Phase.RUNNING
        assert await scene.load(running) == running

    @pytest.mark.parametrize(
        "fields", [{"tool": OTHER}, {"tool": Tool(TOOL.name, "2")}, {"namespace": "elsewhere"}], ids=str
    )
    async def test_an_offer_is_only_for_what_it_can_run(self, scene: StoreHarness, fields: dict[str, Any]) -> None:
        task = await scene.create(claim=OFFER, **fields)
        assert (task.phase, await scene.load(task)) == (Phase.QUEUED, task)
        request = ClaimRequest(task.namespace, frozenset({task.tool}), "worker", LEASE, 1)
        assert [one.id for one in await scene.store.claim(request, now=scene.clock.now())] == [task.id]

    async def test_an_offer_without_tools_begins_nothing(self, scene: StoreHarness) -> None:
        assert (await scene.create(claim=replace(OFFER, tools=frozenset()))).phase is Phase.QUEUED

    async def test_an_offer_does_not_begin_what_is_due_later(self, scene: StoreHarness) -> None:
        due_at = scene.clock.now() + timedelta(seconds=60)
        task = await scene.create(claim=OFFER, due_at=due_at)
        assert (task.phase, task.due_at, await scene.load(task)) == (Phase.PARKED, due_at, task)
        assert len(await scene.history(task)) == 1

    async def test_a_refused_create_with_an_offer_leaves_nothing(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        first = await scene.create(claim=offer, **KEYED)
        for refused in (
            scene.create(claim=offer, quota=Quota(live=1)),
            scene.create(claim=offer, quota=Quota(created=1)),
        ):
            with pytest.raises(QuotaExceeded):
                await refused
        with pytest.raises(AlreadyRecorded):
            await scene.create(id=first.id, claim=offer)
        with pytest.raises(IdempotencyConflict):
            await scene.create(claim=offer, idempotency_key="key", request_digest="another")
        assert await scene.load(first) == first
        assert len(await scene.history(first)) == 2
        assert await scene.store.count_live(EVERYTHING) == {Phase.RUNNING: 1}
        with pytest.raises(TaskNotFound):
            await scene.store.load(TaskId("task-0002"), EVERYTHING, now=scene.clock.now())

    async def test_a_task_that_is_returned_by_its_key_is_not_begun(self, scene: StoreHarness) -> None:
        first = await scene.create(tool=OTHER, **KEYED)
        able = replace(OFFER, tools=frozenset({OTHER}))
        assert await scene.create(claim=able, **KEYED) == first
        assert await scene.create(id=first.id, tool=OTHER, claim=able, **KEYED) == first
        assert (await scene.load(first), len(await scene.history(first))) == (first, 1)

    async def test_a_running_task_that_is_returned_by_its_key_stays_whose_it_was(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        first = await scene.create(claim=offer, **KEYED)
        scene.clock.advance(1)
        assert await scene.create(claim=replace(offer, holder="another"), **KEYED) == first
        assert await scene.load(first) == first

    async def test_an_offer_begins_what_takes_the_key_of_a_task_that_expired(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        first = await scene.create(retention=Retention(keep=timedelta(0)), **KEYED)
        await scene.apply(first, Cancel("alice"))
        second = await scene.create(claim=offer, **KEYED)
        assert (second.id != first.id, second.phase) == (True, Phase.RUNNING)

    async def test_racing_creates_with_offers_begin_each_its_own(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        offers = [replace(offer, holder=f"creator {number}") for number in range(10)]
        creations = [scene.creation() for _ in offers]
        now = scene.clock.now()
        made = await asyncio.gather(
            *(
                scene.store.create(creation, quota=Quota(), now=now, claim=offer)
                for creation, offer in zip(creations, offers, strict=True)
            )
        )
        assert [task.id for task in made] == [creation.task.id for creation in creations]
        assert [self.holder(task) for task in made] == [offer.holder for offer in offers]

    async def test_of_racing_creates_with_one_key_and_offers_one_begins_the_task(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        offers = [replace(offer, holder=f"creator {number}") for number in range(10)]
        made = await asyncio.gather(*(scene.create(claim=offer, **KEYED) for offer in offers))
        assert len(set(map(self.holder, made))) == 1
        assert made == [made[0]] * 10
        assert (made[0].attempt_number, len(await scene.history(made[0]))) == (1, 2)

    async def test_claims_that_race_with_offers_get_nothing_that_is_begun(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        made, claimed = await asyncio.gather(
            asyncio.gather(*(scene.create(claim=offer) for _ in range(10))),
            asyncio.gather(*(scene.claim(limit=3) for _ in range(10))),
        )
        assert [task.phase for task in made] == [Phase.RUNNING] * 10
        assert [task for tasks in claimed for task in tasks] == []

    async def test_an_offer_serves_the_line_as_a_claim_does(self, scene: StoreHarness, offer: ClaimRequest) -> None:
        orders: list[list[tuple[Owner, Tool]]] = []
        for namespace in ("offered", "claimed"):
            theirs = replace(offer, namespace=namespace)
            for _ in range(5):
                await scene.create(namespace=namespace, tool=OTHER)
            if namespace == "offered":
                assert (await scene.create(namespace=namespace, claim=theirs)).phase is Phase.RUNNING
            else:
                await scene.create(namespace=namespace)
                assert len(await scene.store.claim(theirs, now=scene.clock.now())) == 1
            for owner, tool in ((BOB, OTHER), (BOB, TOOL), (ALICE, TOOL)):
                await scene.create(namespace=namespace, owner=owner, tool=tool)
            both = ClaimRequest(namespace, frozenset({TOOL, OTHER}), "worker", LEASE, 10)
            claimed = await scene.store.claim(both, now=scene.clock.now())
            orders.append([(task.owner, task.tool) for task in claimed])
        assert orders[0] == orders[1]
        # Bob arrives when the queue as a whole has been served further than his tool.
        assert orders[0][:3] == [(ALICE, OTHER), (ALICE, OTHER), (BOB, OTHER)]

    async def test_a_listener_hears_of_a_task_that_an_offer_begins(
        self, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        with scene.store.listen() as feed:
            task = await scene.create(claim=offer)
            assert await wait_for_hint(feed, task.id) == {task.id}

    async def test_what_an_offer_began_is_there_after_reopening_and_for_other_handles(
        self, tmp_path: Path, scene: StoreHarness, offer: ClaimRequest
    ) -> None:
        self.require(durable=True, shared=True)
        task = await scene.create(claim=offer)
        async with self.open_store(tmp_path) as other:
            assert await StoreHarness(other, scene.clock).claim() == ()
        await scene.store.close()
        await scene.store.open()
        assert await scene.load(task) == task
        assert [one.event for one in await scene.history(task)] == [Event.CREATE, Event.CLAIM]

    def holder(self, task: Task) -> str | None:
        return None if task.attempt is None else task.attempt.lease.holder
