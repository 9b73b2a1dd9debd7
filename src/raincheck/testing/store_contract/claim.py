"""Contract for claims and leases: one holder at a time, and stale holders do no harm."""

import asyncio
from datetime import timedelta

import pytest

from raincheck.core.commands import Cancel, Complete, Fail, Interrupt, Note, Park, Pause, Release, Resume
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.payload import encode
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.records import Journal, Task, TaskId, Tool
from raincheck.errors import LeaseLost, StaleChange
from raincheck.stores.commit import sweep
from raincheck.stores.requests import ClaimRequest, HeldAttempt
from raincheck.testing.harness import EVERYTHING, LEASE, NAMESPACE, TOOL, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase


def held_attempt(task: Task) -> HeldAttempt:
    return HeldAttempt(task.id, task.attempt_number)


class ClaimContract(StoreContractBase):
    async def test_a_claim_begins_an_attempt_under_a_lease(self, scene: StoreHarness) -> None:
        created = await scene.create()
        scene.clock.advance(1)
        (task,) = await scene.claim(holder="worker-7")
        assert task.attempt is not None
        assert (task.phase, task.attempt_number, task.attempt.number) == (Phase.RUNNING, 1, 1)
        assert task.attempt.lease.holder == "worker-7"
        assert task.attempt.lease.expires_at == scene.clock.now() + LEASE
        assert (task.version, task.id) == (created.version + 1, created.id)
        assert await scene.load(task) == task

    async def test_a_claim_takes_only_what_the_worker_can_run(self, scene: StoreHarness) -> None:
        await scene.create(namespace="elsewhere")
        await scene.create(tool=Tool("other"))
        await scene.create(tool=Tool(TOOL.name, "2"))
        assert await scene.claim(limit=10) == ()
        newer = await scene.claim(limit=10, tools=frozenset({Tool(TOOL.name, "2"), Tool("third")}))
        assert [task.tool.version for task in newer] == ["2"]

    async def test_a_worker_without_tools_gets_nothing(self, scene: StoreHarness) -> None:
        await scene.create()
        assert await scene.claim(tools=frozenset()) == ()

    async def test_higher_priority_goes_first_then_the_older(self, scene: StoreHarness) -> None:
        plain = await scene.create()
        scene.clock.advance(1)
        low, high = await scene.create(priority=-1), await scene.create(priority=5)
        scene.clock.advance(1)
        late = await scene.create()
        claimed = [(await scene.claim())[0].id for _ in range(4)]
        assert claimed == [high.id, plain.id, late.id, low.id]

    async def test_a_claim_takes_no_more_than_asked(self, scene: StoreHarness) -> None:
        for _ in range(5):
            await scene.create()
        assert len(await scene.claim(limit=3)) == 3
        assert len(await scene.claim(limit=3)) == 2
        assert await scene.claim(limit=3) == ()

    async def test_racing_claims_never_get_the_same_task(self, scene: StoreHarness) -> None:
        for _ in range(20):
            await scene.create()
        claims = await asyncio.gather(*(scene.claim(limit=3, holder=f"worker-{n}") for n in range(10)))
        ids = [task.id for claimed in claims for task in claimed]
        assert len(ids) == len(set(ids)) == 20

    async def test_a_parked_task_is_claimed_when_it_is_due_and_not_before(self, scene: StoreHarness) -> None:
        due_at = scene.clock.now() + timedelta(seconds=60)
        await scene.create(due_at=due_at)
        scene.clock.jump_to(due_at - timedelta(microseconds=1))
        assert await scene.claim() == ()
        scene.clock.jump_to(due_at)
        (task,) = await scene.claim()
        assert [entry.event for entry in await scene.history(task)] == [Event.CREATE, Event.DUE, Event.CLAIM]
        assert task.due_at is None

    async def test_what_waits_for_an_answer_or_is_paused_is_not_claimed(self, scene: StoreHarness) -> None:
        waiting = await scene.create_running()
        await scene.apply(waiting, Park(1, seen_signals=0))
        await scene.apply(await scene.create(), Pause("operator"))
        scene.clock.advance(10_000_000)
        assert await scene.claim(limit=10) == ()

    async def test_a_paused_task_keeps_the_moment_it_waits_for(self, scene: StoreHarness) -> None:
        due_at = scene.clock.now() + timedelta(seconds=60)
        task = await scene.create(due_at=due_at)
        await scene.apply(task, Pause("operator"))
        await scene.apply(task, Resume("operator"))
        assert await scene.claim() == ()
        scene.clock.jump_to(due_at)
        assert len(await scene.claim()) == 1

    async def test_each_attempt_has_a_higher_fence(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        for fence in range(2, 6):
            await scene.apply(task, Release(fence - 1))
            (task,) = await scene.claim()
            assert task.attempt_number == fence

    async def test_a_stale_worker_cannot_write_to_a_reclaimed_task(self, scene: StoreHarness) -> None:
        stale = await scene.create_running()
        scene.clock.advance(LEASE.total_seconds())
        await sweep(scene.store, now=scene.clock.now())
        (current,) = await scene.claim(holder="worker-2")
        for command in (Complete(1, encode("stale")), Note(1, status_message="stale"), Release(1), Park(1, 0)):
            in_hand = decide(stale, command, scene.clock.now())
            assert in_hand is not None
            with pytest.raises(StaleChange):
                await scene.store.commit([in_hand])
            with pytest.raises(LeaseLost):
                await scene.apply(stale, command)
        assert await scene.load(current) == current
        await scene.apply(current, Complete(2, encode("current")))

    async def test_an_extended_lease_ends_later_and_nothing_else_changes(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        until = scene.clock.advance(20) + LEASE
        assert await scene.store.extend_leases([held_attempt(task)], until=until) == frozenset()
        now_so = await scene.load(task)
        assert now_so.attempt is not None
        assert now_so.attempt.lease.expires_at == until
        assert (now_so.version, now_so.updated_at, now_so.entries) == (task.version, task.updated_at, task.entries)

    async def test_a_change_decided_before_an_extension_does_not_shorten_the_lease(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        change = decide(task, Note(1, status_message="working"), scene.clock.now())
        assert change is not None
        until = scene.clock.now() + 2 * LEASE
        await scene.store.extend_leases([held_attempt(task)], until=until)
        await scene.store.commit([change])
        now_so = await scene.load(task)
        assert now_so.attempt is not None
        assert (now_so.attempt.lease.expires_at, now_so.status_message) == (until, "working")

    async def test_a_holder_who_lost_the_task_learns_it_when_it_extends(self, scene: StoreHarness) -> None:
        kept, lost, ended = [await scene.create_running() for _ in range(3)]
        await scene.apply(lost, Release(1))
        await scene.claim()
        await scene.apply(ended, Cancel("alice"))
        before = await scene.load(lost)
        holders = [
            held_attempt(kept),
            held_attempt(lost),
            held_attempt(ended),
            HeldAttempt(type(kept.id)("unknown"), 1),
        ]
        answer = await scene.store.extend_leases(holders, until=scene.clock.now() + 9 * LEASE)
        assert answer == {lost.id, ended.id, "unknown"}
        assert await scene.load(lost) == before

    async def test_a_lease_that_ran_out_is_overdue_and_one_that_did_not_is_not(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        scene.clock.advance(1)
        await scene.create_running()
        ends = scene.clock.now() - timedelta(seconds=1) + LEASE
        assert await scene.store.list_overdue(now=ends - timedelta(microseconds=1), limit=10) == ()
        assert await scene.store.list_overdue(now=ends, limit=10) == (task,)

    async def test_what_is_overdue_for_longest_comes_first(self, scene: StoreHarness) -> None:
        now = scene.clock.now()
        late = await scene.create(deadline_at=now + LEASE + timedelta(seconds=1), tool=Tool("other"))
        held_long = await scene.create_running()
        early = await scene.create(deadline_at=now + timedelta(seconds=1), tool=Tool("other"))
        for limit in (3, 2, 1):
            found = await scene.store.list_overdue(now=now + 2 * LEASE, limit=limit)
            assert [task.id for task in found] == [early.id, held_long.id, late.id][:limit]

    async def test_a_swept_task_goes_back_to_the_queue_and_on_from_there(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        scene.clock.advance(LEASE.total_seconds())
        (swept,) = await sweep(scene.store, now=scene.clock.now())
        assert (swept.phase, swept.failures, swept.attempt) == (Phase.QUEUED, 1, None)
        (again,) = await scene.claim()
        assert (again.id, again.attempt_number) == (task.id, 2)

    async def test_a_holder_who_extends_in_time_is_not_cut_off_by_a_sweep_under_way(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        now = scene.clock.advance(LEASE.total_seconds())
        (overdue,) = await scene.store.list_overdue(now=now, limit=10)
        interrupt = decide(overdue, Interrupt(), now)
        assert interrupt is not None
        await scene.store.extend_leases([held_attempt(task)], until=now + LEASE)
        with pytest.raises(StaleChange):
            await scene.store.commit([interrupt])
        assert (await scene.load(task)).phase is Phase.RUNNING

    async def test_a_task_that_must_not_run_twice_fails_when_its_worker_dies(self, scene: StoreHarness) -> None:
        task = await scene.create_running(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
        scene.clock.advance(LEASE.total_seconds())
        (swept,) = await sweep(scene.store, now=scene.clock.now())
        assert (swept.id, swept.phase) == (task.id, Phase.FAILED)
        assert "must not be run twice" in (swept.status_message or "")

    async def test_a_task_that_kills_its_worker_each_time_fails_after_its_attempts(self, scene: StoreHarness) -> None:
        task = await scene.create(retry=RetryPolicy(attempts=3))
        for _ in range(3):
            assert len(await scene.claim()) == 1
            scene.clock.advance(LEASE.total_seconds())
            await sweep(scene.store, now=scene.clock.now())
        ended = await scene.load(task)
        assert (ended.phase, ended.failures) == (Phase.FAILED, 3)
        assert await scene.claim() == ()

    async def test_a_failed_attempt_is_tried_again_after_its_wait(self, scene: StoreHarness) -> None:
        policy = RetryPolicy(attempts=2, first_wait=timedelta(seconds=8), jitter=0)
        task = await scene.create_running(retry=policy)
        error = encode({"message": "broke"})
        parked = await scene.apply(task, Fail(1, error, "broke"))
        assert (parked.phase, parked.due_at) == (Phase.PARKED, scene.clock.now() + timedelta(seconds=8))
        scene.clock.advance(8)
        (again,) = await scene.claim()
        ended = await scene.apply(again, Fail(2, error, "broke"))
        assert (ended.phase, ended.failures, ended.status_message) == (Phase.FAILED, 2, "broke")

    async def test_a_task_past_its_deadline_is_ended_whatever_it_does(self, scene: StoreHarness) -> None:
        deadline = scene.clock.now() + timedelta(seconds=100)
        queued = await scene.create(deadline_at=deadline, tool=Tool("other"))
        parked = await scene.create_running(deadline_at=deadline)
        await scene.apply(parked, Park(1, seen_signals=0))
        running = await scene.create_running(deadline_at=deadline)
        unbounded = await scene.create()
        scene.clock.jump_to(deadline - timedelta(microseconds=1))
        await scene.store.extend_leases([held_attempt(running)], until=deadline + LEASE)
        assert await sweep(scene.store, now=scene.clock.now()) == ()
        scene.clock.jump_to(deadline)
        swept = await sweep(scene.store, now=scene.clock.now())
        assert {task.id for task in swept} == {queued.id, parked.id, running.id}
        assert {task.phase for task in swept} == {Phase.FAILED}
        assert (await scene.load(unbounded)).phase is Phase.QUEUED

    async def test_an_old_task_that_just_began_again_is_left_alone(self, scene: StoreHarness) -> None:
        await scene.create()
        scene.clock.advance(10_000_000)
        (task,) = await scene.claim()
        assert await sweep(scene.store, now=scene.clock.now()) == ()
        assert await scene.store.prune(now=scene.clock.now(), limit=10) == ()
        assert await scene.load(task) == task

    async def test_a_claim_is_namespaced_even_with_the_same_tool(self, scene: StoreHarness) -> None:
        await scene.create(namespace="elsewhere")
        request = ClaimRequest("elsewhere", frozenset({TOOL}), "worker", LEASE, 1)
        assert await scene.claim() == ()
        assert len(await scene.store.claim(request, now=scene.clock.now())) == 1

    async def test_a_claim_that_tells_of_journals_tells_what_is_kept(self, scene: StoreHarness) -> None:
        again = await scene.create_running()
        again = await scene.apply(again, Note(1, steps=(scene.step("load"),)))
        await scene.apply(again, Release(1))
        fresh = await scene.create()
        journals: dict[TaskId, Journal] = {}
        request = ClaimRequest(NAMESPACE, frozenset({TOOL}), "worker", LEASE, 2, journals=journals)
        begun = await scene.store.claim(request, now=scene.clock.now())
        assert {task.id for task in begun} == {fresh.id, again.id}
        # A store need not return journals, and leaves out those with more content than it has read.
        assert again.id not in journals
        for task_id, journal in journals.items():
            assert journal == await scene.store.journal(task_id, EVERYTHING, now=scene.clock.now())
