"""Contract for direct start: creating a task may claim it in the same call, unless that overtakes another task."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Owner
from raincheck.core.policies import Quota, Retention
from raincheck.core.records import Attempt, Lease, Task, TaskId, Tool
from raincheck.core.values import encode
from raincheck.errors import AlreadyRecorded, IdempotencyConflict, QuotaExceeded, TaskNotFound
from raincheck.stores.base import Store
from raincheck.stores.requests import ClaimRequest, HeldAttempt
from raincheck.testing.clock import FakeClock
from raincheck.testing.harness import (
    ALICE,
    BOB,
    EVERYTHING,
    KEYED,
    LEASE,
    NAMESPACE,
    OTHER_REQUEST,
    TOOL,
    StoreHarness,
    wait_for_hint,
)
from raincheck.testing.store_contract.base import StoreContractBase

OTHER = Tool("other")
OFFER = ClaimRequest(NAMESPACE, frozenset({TOOL, Tool("third")}), "creator", LEASE, 1)
MOMENT = timedelta(microseconds=1)


class DirectStartContract(StoreContractBase):
    @pytest.fixture
    def harness(self, request: pytest.FixtureRequest, store: Store, clock: FakeClock) -> StoreHarness:
        """Return a harness, unless a test of this class meets a store that declines direct starts.

        The whole contract inherits this fixture.
        """
        if request.function.__name__ in vars(DirectStartContract) and not store.capabilities.supports_direct_start:
            pytest.skip("declared: no direct start")
        return StoreHarness(store, clock)

    async def test_an_offer_starts_the_new_task_immediately(self, harness: StoreHarness) -> None:
        creation = harness.creation(caller=encode("alice"), actor="alice")
        now = harness.clock.now()
        task = await harness.store.create(creation, quota=Quota(live=1, created=1), now=now, claim=OFFER)
        assert (task.id, task.phase, task.attempt_number, task.version) == (creation.task.id, Phase.RUNNING, 1, 2)
        assert task.attempt == Attempt(1, now, Lease("creator", now + LEASE))
        journal = await harness.store.journal(task.id, EVERYTHING, now=now)
        assert await harness.load(task) == task == journal.task
        assert (journal.arguments, journal.caller) == (creation.arguments, creation.caller)
        first, second = await harness.history(task)
        assert first == creation.entry
        assert (second.seq, second.event, second.actor, second.attempt) == (2, Event.CLAIM, "creator", 1)

    async def test_a_task_that_an_offer_starts_equals_a_claimed_one(self, harness: StoreHarness) -> None:
        fields: dict[str, Any] = {"priority": 3, "deadline_at": harness.clock.now() + timedelta(days=1), **KEYED}
        offered = await harness.create(claim=OFFER, **fields)
        apart = await harness.create(owner=BOB, **fields)
        (claimed,) = await harness.claim(holder="creator")
        assert claimed.id == apart.id
        assert offered == replace(claimed, id=offered.id, owner=ALICE)
        assert await harness.history(offered) == await harness.history(claimed)

    async def test_a_task_that_an_offer_started_runs_like_any_other(self, harness: StoreHarness) -> None:
        task = await harness.create(claim=OFFER)
        until = harness.clock.advance(1) + LEASE
        assert await harness.store.extend_leases([HeldAttempt(task.id, 1)], until=until) == frozenset()
        await harness.apply(task, Note(1, steps=(harness.step("load"),)))
        assert await harness.store.list_overdue(now=until, limit=10) == (await harness.load(task),)
        ended = await harness.apply(task, Complete(1, encode("done")))
        assert (ended.phase, ended.entries) == (Phase.COMPLETED, 4)

    async def test_a_task_that_an_offer_started_is_not_claimed(self, harness: StoreHarness) -> None:
        task = await harness.create(claim=OFFER)
        assert await harness.store.next_due(NAMESPACE, OFFER.tools) is None
        assert await harness.claim(limit=10) == ()
        assert await harness.store.count_live(EVERYTHING) == {Phase.RUNNING: 1}
        assert await harness.load(task) == task

    async def test_an_offer_does_not_overtake_a_due_task(self, harness: StoreHarness) -> None:
        due_at = harness.clock.now() + timedelta(seconds=60)
        waiting = await harness.create(due_at=due_at)
        harness.clock.jump_to(due_at - MOMENT)
        assert (await harness.create(claim=OFFER)).phase is Phase.RUNNING
        harness.clock.jump_to(due_at)
        late = await harness.create(claim=OFFER)
        assert late.phase is Phase.QUEUED
        assert await harness.load(waiting) == waiting
        assert {task.id for task in await harness.claim(limit=2)} == {waiting.id, late.id}

    async def test_an_offer_ignores_queued_tasks_that_it_cannot_run(self, harness: StoreHarness) -> None:
        await harness.apply(await harness.create(), Pause("operator"))
        parked = await harness.create_running()
        await harness.apply(parked, Park(1, seen_signals=0))
        await harness.apply(await harness.create_running(), Complete(1, encode("done")))
        running = await harness.create_running()
        await harness.create(namespace="elsewhere")
        await harness.create(tool=OTHER, due_at=harness.clock.now() + MOMENT)
        await harness.create(tool=OTHER)
        await harness.create(tool=Tool(TOOL.name, "2"), priority=9)
        harness.clock.advance(1)
        assert (await harness.create(claim=OFFER)).phase is Phase.RUNNING
        assert await harness.load(running) == running

    async def test_a_rejected_create_with_an_offer_changes_nothing(self, harness: StoreHarness) -> None:
        first = await harness.create(claim=OFFER, **KEYED)
        for refused in (
            harness.create(claim=OFFER, quota=Quota(live=1)),
            harness.create(claim=OFFER, quota=Quota(created=1)),
        ):
            with pytest.raises(QuotaExceeded):
                await refused
        with pytest.raises(AlreadyRecorded):
            await harness.create(id=first.id, claim=OFFER)
        with pytest.raises(IdempotencyConflict):
            await harness.create(claim=OFFER, **OTHER_REQUEST)
        assert await harness.load(first) == first
        assert len(await harness.history(first)) == 2
        assert await harness.store.count_live(EVERYTHING) == {Phase.RUNNING: 1}
        with pytest.raises(TaskNotFound):
            await harness.store.load(TaskId("task-0002"), EVERYTHING, now=harness.clock.now())

    async def test_a_running_task_found_by_its_key_keeps_its_holder(self, harness: StoreHarness) -> None:
        first = await harness.create(claim=OFFER, **KEYED)
        harness.clock.advance(1)
        assert await harness.create(claim=replace(OFFER, holder="another"), **KEYED) == first
        assert await harness.load(first) == first

    async def test_an_offer_starts_a_task_that_reuses_the_key_of_an_expired_one(self, harness: StoreHarness) -> None:
        first = await harness.create(retention=Retention(keep=timedelta(0)), **KEYED)
        await harness.apply(first, Cancel("alice"))
        second = await harness.create(claim=OFFER, **KEYED)
        assert (second.id != first.id, second.phase) == (True, Phase.RUNNING)

    async def test_racing_creates_with_offers_each_start_their_own_task(self, harness: StoreHarness) -> None:
        offers = [replace(OFFER, holder=f"creator {number}") for number in range(10)]
        creations = [harness.creation() for _ in offers]
        now = harness.clock.now()
        tasks = await asyncio.gather(
            *(
                harness.store.create(creation, quota=Quota(), now=now, claim=offer)
                for creation, offer in zip(creations, offers, strict=True)
            )
        )
        assert [task.id for task in tasks] == [creation.task.id for creation in creations]
        assert [self.holder(task) for task in tasks] == [offer.holder for offer in offers]

    async def test_racing_creates_with_one_key_and_offers_start_the_task_once(self, harness: StoreHarness) -> None:
        offers = [replace(OFFER, holder=f"creator {number}") for number in range(10)]
        tasks = await asyncio.gather(*(harness.create(claim=offer, **KEYED) for offer in offers))
        assert len(set(map(self.holder, tasks))) == 1
        assert tasks == [tasks[0]] * 10
        assert (tasks[0].attempt_number, len(await harness.history(tasks[0]))) == (1, 2)

    async def test_claims_that_race_with_offers_get_no_started_task(self, harness: StoreHarness) -> None:
        tasks, claimed = await asyncio.gather(
            asyncio.gather(*(harness.create(claim=OFFER) for _ in range(10))),
            asyncio.gather(*(harness.claim(limit=3) for _ in range(10))),
        )
        assert [task.phase for task in tasks] == [Phase.RUNNING] * 10
        assert [task for batch in claimed for task in batch] == []

    async def test_an_offer_advances_the_queue_as_a_claim_does(self, harness: StoreHarness) -> None:
        orders: list[list[tuple[Owner, Tool]]] = []
        for namespace in ("offered", "claimed"):
            namespaced = replace(OFFER, namespace=namespace)
            for _ in range(5):
                await harness.create(namespace=namespace, tool=OTHER)
            if namespace == "offered":
                assert (await harness.create(namespace=namespace, claim=namespaced)).phase is Phase.RUNNING
            else:
                await harness.create(namespace=namespace)
                assert len(await harness.store.claim(namespaced, now=harness.clock.now())) == 1
            for owner, tool in ((BOB, OTHER), (BOB, TOOL), (ALICE, TOOL)):
                await harness.create(namespace=namespace, owner=owner, tool=tool)
            both = ClaimRequest(namespace, frozenset({TOOL, OTHER}), "worker", LEASE, 10)
            claimed = await harness.store.claim(both, now=harness.clock.now())
            orders.append([(task.owner, task.tool) for task in claimed])
        assert orders[0] == orders[1]
        # Bob arrives when the queue as a whole has been served further than his tool.
        assert orders[0][:3] == [(ALICE, OTHER), (ALICE, OTHER), (BOB, OTHER)]

    async def test_the_change_feed_reports_a_task_that_an_offer_starts(self, harness: StoreHarness) -> None:
        with harness.store.listen() as feed:
            task = await harness.create(claim=OFFER)
            assert await wait_for_hint(feed, task.id) == {task.id}

    async def test_a_task_that_an_offer_started_is_running_after_reopening_and_for_other_handles(
        self, tmp_path: Path, harness: StoreHarness
    ) -> None:
        self.require(durable=True, shared=True)
        task = await harness.create(claim=OFFER)
        async with self.open_store(tmp_path) as other:
            assert await StoreHarness(other, harness.clock).claim() == ()
        await harness.store.close()
        await harness.store.open()
        assert await harness.load(task) == task
        assert [entry.event for entry in await harness.history(task)] == [Event.CREATE, Event.CLAIM]

    def holder(self, task: Task) -> str | None:
        return None if task.attempt is None else task.attempt.lease.holder


class QueuedOfferContract(StoreContractBase):
    """An offer that starts nothing. Stores without direct start accept it, too."""

    @pytest.mark.parametrize("waiting", [{}, {"tool": Tool("third")}, {"owner": BOB}, {"priority": -1}], ids=str)
    async def test_an_offer_does_not_overtake_a_queued_task(
        self, harness: StoreHarness, waiting: dict[str, Any]
    ) -> None:
        first = await harness.create(**waiting)
        second = await harness.create(claim=OFFER)
        assert (second.phase, second.attempt, await harness.load(second)) == (Phase.QUEUED, None, second)
        assert len(await harness.history(second)) == 1
        claimed = await harness.store.claim(replace(OFFER, limit=2), now=harness.clock.now())
        assert {task.id for task in claimed} == {first.id, second.id}

    @pytest.mark.parametrize(
        "fields", [{"tool": OTHER}, {"tool": Tool(TOOL.name, "2")}, {"namespace": "elsewhere"}], ids=str
    )
    async def test_an_offer_starts_only_tasks_that_it_can_run(
        self, harness: StoreHarness, fields: dict[str, Any]
    ) -> None:
        task = await harness.create(claim=OFFER, **fields)
        assert (task.phase, await harness.load(task)) == (Phase.QUEUED, task)
        request = ClaimRequest(task.namespace, frozenset({task.tool}), "worker", LEASE, 1)
        assert [claimed.id for claimed in await harness.store.claim(request, now=harness.clock.now())] == [task.id]

    async def test_an_offer_without_tools_starts_nothing(self, harness: StoreHarness) -> None:
        assert (await harness.create(claim=replace(OFFER, tools=frozenset()))).phase is Phase.QUEUED

    async def test_an_offer_does_not_start_a_task_that_is_due_later(self, harness: StoreHarness) -> None:
        due_at = harness.clock.now() + timedelta(seconds=60)
        task = await harness.create(claim=OFFER, due_at=due_at)
        assert (task.phase, task.due_at, await harness.load(task)) == (Phase.PARKED, due_at, task)
        assert len(await harness.history(task)) == 1

    async def test_an_offer_does_not_start_a_task_found_by_its_key(self, harness: StoreHarness) -> None:
        first = await harness.create(tool=OTHER, **KEYED)
        able = replace(OFFER, tools=frozenset({OTHER}))
        assert await harness.create(claim=able, **KEYED) == first
        assert await harness.create(id=first.id, tool=OTHER, claim=able, **KEYED) == first
        assert (await harness.load(first), len(await harness.history(first))) == (first, 1)
