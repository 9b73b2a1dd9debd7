"""Contract for claims and leases: one holder at a time, and stale holders do no harm."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from raincheck.core.commands import Cancel, Complete, Fail, Interrupt, Note, Park, Pause, Release, Resume
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.records import Attempt, Journal, Lease, Task, TaskId, Tool
from raincheck.core.values import encode
from raincheck.errors import LeaseLost, StaleChange
from raincheck.stores.requests import ClaimRequest, HeldAttempt
from raincheck.testing.harness import EVERYTHING, LEASE, NAMESPACE, TOOL, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase


def held_attempt(task: Task) -> HeldAttempt:
    return HeldAttempt(task.id, task.attempt_number)


def with_lease_until(task: Task, until: datetime) -> Task:
    """Return a running task whose lease was extended, and nothing else."""
    assert task.attempt is not None
    return task.evolve(attempt=replace(task.attempt, lease=Lease(task.attempt.lease.holder, until)))


class ClaimContract(StoreContractBase):
    async def test_a_claim_starts_an_attempt_with_a_lease(self, harness: StoreHarness) -> None:
        created = await harness.create()
        harness.clock.advance(1)
        (task,) = await harness.claim(holder="worker-7")
        now = harness.clock.now()
        assert (task.phase, task.attempt_number) == (Phase.RUNNING, 1)
        assert task.attempt == Attempt(1, now, Lease("worker-7", now + LEASE))
        assert (task.version, task.id) == (created.version + 1, created.id)
        assert await harness.load(task) == task

    async def test_a_claim_takes_only_what_the_worker_can_run(self, harness: StoreHarness) -> None:
        await harness.create(namespace="elsewhere")
        await harness.create(tool=Tool("other"))
        await harness.create(tool=Tool(TOOL.name, "2"))
        assert await harness.claim(limit=10) == ()
        newer = await harness.claim(limit=10, tools=frozenset({Tool(TOOL.name, "2"), Tool("third")}))
        assert [task.tool.version for task in newer] == ["2"]

    async def test_a_worker_without_tools_gets_nothing(self, harness: StoreHarness) -> None:
        await harness.create()
        assert await harness.claim(tools=frozenset()) == ()

    async def test_tasks_are_claimed_by_priority_and_then_by_age(self, harness: StoreHarness) -> None:
        plain = await harness.create()
        harness.clock.advance(1)
        low, high = await harness.create(priority=-1), await harness.create(priority=5)
        harness.clock.advance(1)
        late = await harness.create()
        claimed = [(await harness.claim())[0].id for _ in range(4)]
        assert claimed == [high.id, plain.id, late.id, low.id]

    async def test_a_claim_returns_at_most_its_limit(self, harness: StoreHarness) -> None:
        for _ in range(5):
            await harness.create()
        assert len(await harness.claim(limit=3)) == 3
        assert len(await harness.claim(limit=3)) == 2
        assert await harness.claim(limit=3) == ()

    async def test_racing_claims_never_get_the_same_task(self, harness: StoreHarness) -> None:
        for _ in range(20):
            await harness.create()
        claims = await asyncio.gather(*(harness.claim(limit=3, holder=f"worker-{n}") for n in range(10)))
        ids = [task.id for claimed in claims for task in claimed]
        assert len(ids) == len(set(ids)) == 20

    async def test_a_parked_task_is_claimed_when_it_is_due_and_not_before(self, harness: StoreHarness) -> None:
        due_at = harness.clock.now() + timedelta(seconds=60)
        await harness.create(due_at=due_at)
        harness.clock.jump_to(due_at - timedelta(microseconds=1))
        assert await harness.claim() == ()
        harness.clock.jump_to(due_at)
        (task,) = await harness.claim()
        assert [entry.event for entry in await harness.history(task)] == [Event.CREATE, Event.DUE, Event.CLAIM]
        assert task.due_at is None

    async def test_parked_and_paused_tasks_are_not_claimed(self, harness: StoreHarness) -> None:
        waiting = await harness.create_running()
        await harness.apply(waiting, Park(1, seen_signals=0))
        await harness.apply(await harness.create(), Pause("operator"))
        harness.clock.advance(10_000_000)
        assert await harness.claim(limit=10) == ()

    async def test_a_paused_task_keeps_its_due_time(self, harness: StoreHarness) -> None:
        due_at = harness.clock.now() + timedelta(seconds=60)
        task = await harness.create(due_at=due_at)
        await harness.apply(task, Pause("operator"))
        await harness.apply(task, Resume("operator"))
        assert await harness.claim() == ()
        harness.clock.jump_to(due_at)
        assert len(await harness.claim()) == 1

    async def test_each_attempt_has_a_higher_fence(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        for fence in range(2, 6):
            await harness.apply(task, Release(fence - 1))
            (task,) = await harness.claim()
            assert task.attempt_number == fence

    async def test_a_stale_worker_cannot_write_to_a_reclaimed_task(self, harness: StoreHarness) -> None:
        stale = await harness.create_running()
        harness.clock.advance(LEASE.total_seconds())
        await harness.sweep()
        (current,) = await harness.claim(holder="worker-2")
        for command in (Complete(1, encode("stale")), Note(1, status_message="stale"), Release(1), Park(1, 0)):
            change = harness.decide(stale, command)
            with pytest.raises(StaleChange):
                await harness.store.commit([change])
            with pytest.raises(LeaseLost):
                await harness.apply(stale, command)
        assert await harness.load(current) == current
        await harness.apply(current, Complete(2, encode("current")))

    async def test_an_extended_lease_ends_later_and_nothing_else_changes(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        until = harness.clock.advance(20) + LEASE
        assert await harness.store.extend_leases([held_attempt(task)], until=until) == frozenset()
        assert await harness.load(task) == with_lease_until(task, until)

    async def test_a_change_decided_before_an_extension_does_not_shorten_the_lease(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        change = harness.decide(task, Note(1, status_message="working"))
        until = harness.clock.now() + 2 * LEASE
        await harness.store.extend_leases([held_attempt(task)], until=until)
        await harness.store.commit([change])
        assert await harness.load(task) == with_lease_until(change.after, until)

    async def test_extending_a_lost_lease_reports_that_it_is_lost(self, harness: StoreHarness) -> None:
        held, lost, ended = [await harness.create_running() for _ in range(3)]
        await harness.apply(lost, Release(1))
        await harness.claim()
        await harness.apply(ended, Cancel("alice"))
        before = await harness.load(lost)
        attempts = [
            held_attempt(held),
            held_attempt(lost),
            held_attempt(ended),
            HeldAttempt(TaskId("unknown"), 1),
        ]
        lost_ids = await harness.store.extend_leases(attempts, until=harness.clock.now() + 9 * LEASE)
        assert lost_ids == {lost.id, ended.id, "unknown"}
        assert await harness.load(lost) == before

    async def test_a_lease_is_overdue_once_it_has_expired(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        harness.clock.advance(1)
        await harness.create_running()
        ends = harness.clock.now() - timedelta(seconds=1) + LEASE
        assert await harness.store.list_overdue(now=ends - timedelta(microseconds=1), limit=10) == ()
        assert await harness.store.list_overdue(now=ends, limit=10) == (task,)

    async def test_overdue_tasks_are_listed_longest_overdue_first(self, harness: StoreHarness) -> None:
        now = harness.clock.now()
        late = await harness.create(deadline_at=now + LEASE + timedelta(seconds=1), tool=Tool("other"))
        held_long = await harness.create_running()
        early = await harness.create(deadline_at=now + timedelta(seconds=1), tool=Tool("other"))
        for limit in (3, 2, 1):
            found = await harness.store.list_overdue(now=now + 2 * LEASE, limit=limit)
            assert [task.id for task in found] == [early.id, held_long.id, late.id][:limit]

    async def test_a_swept_task_is_queued_and_claimed_again(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        harness.clock.advance(LEASE.total_seconds())
        (swept,) = await harness.sweep()
        assert (swept.phase, swept.failures, swept.attempt) == (Phase.QUEUED, 1, None)
        (again,) = await harness.claim()
        assert (again.id, again.attempt_number) == (task.id, 2)

    async def test_a_lease_extended_during_a_sweep_is_not_interrupted(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        now = harness.clock.advance(LEASE.total_seconds())
        (overdue,) = await harness.store.list_overdue(now=now, limit=10)
        interrupt = harness.decide(overdue, Interrupt())
        await harness.store.extend_leases([held_attempt(task)], until=now + LEASE)
        with pytest.raises(StaleChange):
            await harness.store.commit([interrupt])
        assert (await harness.load(task)).phase is Phase.RUNNING

    async def test_a_task_that_must_not_run_twice_fails_when_its_worker_dies(self, harness: StoreHarness) -> None:
        task = await harness.create_running(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
        harness.clock.advance(LEASE.total_seconds())
        (swept,) = await harness.sweep()
        assert (swept.id, swept.phase) == (task.id, Phase.FAILED)
        assert "must not be run twice" in (swept.status_message or "")

    async def test_a_task_whose_worker_dies_in_every_attempt_fails_after_the_last(self, harness: StoreHarness) -> None:
        task = await harness.create(retry=RetryPolicy(attempts=3))
        for _ in range(3):
            assert len(await harness.claim()) == 1
            harness.clock.advance(LEASE.total_seconds())
            await harness.sweep()
        ended = await harness.load(task)
        assert (ended.phase, ended.failures) == (Phase.FAILED, 3)
        assert await harness.claim() == ()

    async def test_a_failed_attempt_is_retried_after_its_wait(self, harness: StoreHarness) -> None:
        policy = RetryPolicy(attempts=2, first_wait=timedelta(seconds=8), jitter=0)
        task = await harness.create_running(retry=policy)
        error = encode({"message": "broke"})
        parked = await harness.apply(task, Fail(1, error, "broke"))
        assert (parked.phase, parked.due_at) == (Phase.PARKED, harness.clock.now() + timedelta(seconds=8))
        harness.clock.advance(8)
        (again,) = await harness.claim()
        ended = await harness.apply(again, Fail(2, error, "broke"))
        assert (ended.phase, ended.failures, ended.status_message) == (Phase.FAILED, 2, "broke")

    async def test_a_sweep_fails_tasks_past_their_deadline_in_every_phase(self, harness: StoreHarness) -> None:
        deadline = harness.clock.now() + timedelta(seconds=100)
        queued = await harness.create(deadline_at=deadline, tool=Tool("other"))
        parked = await harness.create_running(deadline_at=deadline)
        await harness.apply(parked, Park(1, seen_signals=0))
        running = await harness.create_running(deadline_at=deadline)
        unbounded = await harness.create()
        harness.clock.jump_to(deadline - timedelta(microseconds=1))
        await harness.store.extend_leases([held_attempt(running)], until=deadline + LEASE)
        assert await harness.sweep() == ()
        harness.clock.jump_to(deadline)
        swept = await harness.sweep()
        assert {task.id for task in swept} == {queued.id, parked.id, running.id}
        assert {task.phase for task in swept} == {Phase.FAILED}
        assert (await harness.load(unbounded)).phase is Phase.QUEUED

    async def test_an_old_task_that_was_just_claimed_is_neither_swept_nor_pruned(self, harness: StoreHarness) -> None:
        await harness.create()
        harness.clock.advance(10_000_000)
        (task,) = await harness.claim()
        assert await harness.sweep() == ()
        assert await harness.store.prune(now=harness.clock.now(), limit=10) == ()
        assert await harness.load(task) == task

    async def test_a_claim_is_namespaced_even_with_the_same_tool(self, harness: StoreHarness) -> None:
        await harness.create(namespace="elsewhere")
        request = ClaimRequest("elsewhere", frozenset({TOOL}), "worker", LEASE, 1)
        assert await harness.claim() == ()
        assert len(await harness.store.claim(request, now=harness.clock.now())) == 1

    async def test_the_journals_that_a_claim_returns_are_the_stored_ones(self, harness: StoreHarness) -> None:
        again = await harness.create_running()
        again = await harness.apply(again, Note(1, steps=(harness.step("load"),)))
        await harness.apply(again, Release(1))
        fresh = await harness.create()
        journals: dict[TaskId, Journal] = {}
        request = ClaimRequest(NAMESPACE, frozenset({TOOL}), "worker", LEASE, 2, journals=journals)
        claimed = await harness.store.claim(request, now=harness.clock.now())
        assert {task.id for task in claimed} == {fresh.id, again.id}
        # A store need not return journals, and leaves out those with more content than it has read.
        assert again.id not in journals
        for task_id, journal in journals.items():
            assert journal == await harness.store.journal(task_id, EVERYTHING, now=harness.clock.now())
