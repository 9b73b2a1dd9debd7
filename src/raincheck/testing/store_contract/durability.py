"""Contract for durable data that outlives a handle, and for several handles on the same data."""

import asyncio
from pathlib import Path

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Resume
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.payload import encode
from raincheck.core.records import Task, TaskId
from raincheck.errors import LeaseLost, QuotaExceeded, StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANY_TASK
from raincheck.stores.commit import answer, sweep
from raincheck.stores.requests import HeldAttempt
from raincheck.testing.clock import FakeClock
from raincheck.testing.harness import EVERYTHING, LEASE, StoreHarness
from raincheck.testing.invariants import check_invariants
from raincheck.testing.store_contract.base import StoreContractBase


class DurabilityContract(StoreContractBase):
    async def test_a_store_that_is_not_open_raises_an_error(self, tmp_path: Path, clock: FakeClock) -> None:
        harness = StoreHarness(self.make_store(tmp_path), clock)
        with pytest.raises(StoreUnavailable, match="open it"):
            await harness.create()
        await harness.store.open()
        await harness.store.close()
        await harness.store.close()
        for operation in (harness.create(), harness.claim(), harness.store.count_live(EVERYTHING)):
            with pytest.raises(StoreUnavailable, match="open it"):
                await operation

    async def test_committed_changes_are_stored_after_reopening(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(durable=True)
        async with self.open_store(tmp_path) as store:
            harness = StoreHarness(store, clock)
            parked = await harness.create_running()
            await harness.apply(
                parked, Note(1, steps=(harness.step("load"),), input_requests=(harness.input_request("publish"),))
            )
            parked = await harness.apply(parked, Park(1, seen_signals=0))
            ended = await harness.create_running()
            ended = await harness.apply(ended, Complete(1, encode("done")))
        async with self.open_store(tmp_path) as store:
            harness = StoreHarness(store, clock)
            assert await harness.load(parked) == parked
            view = await store.view(ended.id, EVERYTHING, now=clock.now())
            assert (view.task, view.outcome) == (ended, encode("done"))
            await answer(store, parked.id, EVERYTHING, {"publish": encode(1)}, actor="alice", now=clock.now())
            (again,) = await harness.claim()
            journal = await store.journal(again.id, EVERYTHING, now=clock.now())
            assert [step.name for step in journal.steps] == ["load"]
            await check_invariants(store)

    async def test_another_handle_takes_over_the_tasks_of_a_dead_one(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as dead, self.open_store(tmp_path) as alive:
            held = await StoreHarness(dead, clock).create_running()
            clock.advance(LEASE.total_seconds())
            await sweep(alive, now=clock.now())
            (again,) = await StoreHarness(alive, clock).claim(holder="worker-2")
            with pytest.raises(LeaseLost):
                await StoreHarness(dead, clock).apply(held, Complete(1, encode("stale")))
            await StoreHarness(alive, clock).apply(again, Complete(2, encode("done")))
            await check_invariants(dead)

    async def test_handles_that_race_for_work_never_share_a_task(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as one, self.open_store(tmp_path) as two:
            harness = StoreHarness(one, clock)
            for _ in range(30):
                await harness.create()

            async def work(store: Store) -> list[str]:
                mine: list[str] = []
                while claimed := await StoreHarness(store, clock).claim(limit=2):
                    mine += [task.id for task in claimed]
                return mine

            first, second = await asyncio.gather(work(one), work(two))
            assert len(first) + len(second) == len({*first, *second}) == 30
            await check_invariants(one)

    async def test_handles_that_race_to_end_a_task_agree_on_the_winner(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as one, self.open_store(tmp_path) as two:
            for number in range(10):
                task = await StoreHarness(one, clock).create_running(id=TaskId(f"task {number}"))
                outcomes = await asyncio.gather(
                    StoreHarness(one, clock).apply(task, Complete(1, encode("done"))),
                    StoreHarness(two, clock).apply(task, Cancel("alice")),
                    return_exceptions=True,
                )
                winners = [outcome for outcome in outcomes if isinstance(outcome, Task)]
                assert len(winners) == 1
                assert (
                    await StoreHarness(two, clock).load(task) == await StoreHarness(one, clock).load(task) == winners[0]
                )

    async def test_racing_handles_do_not_exceed_the_live_quota(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as one, self.open_store(tmp_path) as two:
            outcomes = await asyncio.gather(
                *(
                    StoreHarness(store, clock).create(id=TaskId(f"task {number}"), quota=Quota(live=5))
                    for number, store in enumerate([one, two] * 10)
                ),
                return_exceptions=True,
            )
            assert sum(isinstance(outcome, QuotaExceeded) for outcome in outcomes) == 15
            assert await one.count_live(EVERYTHING) == {Phase.QUEUED: 5}

    async def test_a_new_handle_extends_leases_from_another_thread_and_event_loop(
        self, tmp_path: Path, clock: FakeClock
    ) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as store:
            harness = StoreHarness(store, clock)
            mine, lost = await harness.create_running(), await harness.create_running()
            await harness.apply(lost, Cancel("alice"))
            until = clock.now() + 9 * LEASE
            held_attempts = [HeldAttempt(task.id, task.attempt_number) for task in (mine, lost)]

            async def heartbeat() -> frozenset[TaskId]:
                handle = store.new_handle()
                await handle.open()
                try:
                    return await handle.extend_leases(held_attempts, until=until)
                finally:
                    await handle.close()

            assert await asyncio.to_thread(asyncio.run, heartbeat()) == {lost.id}
            extended = await harness.load(mine)
            assert extended.attempt is not None
            assert extended.attempt.lease.expires_at == until
            await check_invariants(store)

    async def test_handles_that_write_in_separate_threads_lose_nothing(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as store:

            async def create(name: str) -> None:
                handle = store.new_handle()
                await handle.open()
                for number in range(20):
                    await StoreHarness(handle, clock).create(id=TaskId(f"{name} {number}"))
                await handle.close()

            await asyncio.gather(*(asyncio.to_thread(asyncio.run, create(name)) for name in ("one", "two")))
            assert await store.count_live(EVERYTHING) == {Phase.QUEUED: 40}

    async def test_only_a_shared_store_makes_new_handles(self, store: Store) -> None:
        if store.capabilities.shared:
            assert store.new_handle() is not store
        else:
            with pytest.raises(StoreUnavailable):
                store.new_handle()

    async def test_closing_one_handle_ends_only_its_own_feeds(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as one:
            with one.listen() as feed:
                async with self.open_store(tmp_path):
                    pass
                task = await StoreHarness(one, clock).create()
                async with asyncio.timeout(10):
                    while task.id not in await anext(feed):
                        pass

    async def test_the_change_feed_reports_changes_of_another_handle(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as one, self.open_store(tmp_path) as two:
            task = await StoreHarness(one, clock).create()
            with two.listen() as feed:
                # A hint without task ids may be left from before the first change, so one change would prove nothing.
                for command in (Pause("alice"), Resume("alice"), Cancel("alice")):
                    changed = await StoreHarness(one, clock).apply(task, command)
                    async with asyncio.timeout(10):
                        async for hint in feed:
                            if hint == ANY_TASK or task.id in hint:
                                break
                    assert await StoreHarness(two, clock).load(task) == changed
