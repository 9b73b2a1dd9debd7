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
    async def test_a_store_that_is_not_open_says_so(self, tmp_path: Path, clock: FakeClock) -> None:
        scene = StoreHarness(self.make_store(tmp_path), clock)
        with pytest.raises(StoreUnavailable, match="open it"):
            await scene.create()
        await scene.store.open()
        await scene.store.close()
        await scene.store.close()
        for doing in (scene.create(), scene.claim(), scene.store.count_live(EVERYTHING)):
            with pytest.raises(StoreUnavailable, match="open it"):
                await doing

    async def test_what_was_committed_is_there_after_reopening(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(durable=True)
        async with self.open_store(tmp_path) as store:
            scene = StoreHarness(store, clock)
            parked = await scene.create_running()
            await scene.apply(
                parked, Note(1, steps=(scene.step("load"),), input_requests=(scene.input_request("publish"),))
            )
            parked = await scene.apply(parked, Park(1, seen_signals=0))
            ended = await scene.create_running()
            ended = await scene.apply(ended, Complete(1, encode("done")))
        async with self.open_store(tmp_path) as store:
            scene = StoreHarness(store, clock)
            assert await scene.load(parked) == parked
            view = await store.view(ended.id, EVERYTHING, now=clock.now())
            assert (view.task, view.outcome) == (ended, encode("done"))
            await answer(store, parked.id, EVERYTHING, {"publish": encode(1)}, actor="alice", now=clock.now())
            (again,) = await scene.claim()
            journal = await store.journal(again.id, EVERYTHING, now=clock.now())
            assert [step.name for step in journal.steps] == ["load"]
            await check_invariants(store)

    async def test_another_handle_takes_over_what_a_dead_one_held(self, tmp_path: Path, clock: FakeClock) -> None:
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
            scene = StoreHarness(one, clock)
            for _ in range(30):
                await scene.create()

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
                winners = [one for one in outcomes if isinstance(one, Task)]
                assert len(winners) == 1
                assert (
                    await StoreHarness(two, clock).load(task) == await StoreHarness(one, clock).load(task) == winners[0]
                )

    async def test_handles_that_race_for_the_last_place_in_a_quota_do_not_both_get_it(
        self, tmp_path: Path, clock: FakeClock
    ) -> None:
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

    async def test_a_twin_extends_leases_from_a_thread_with_a_loop_of_its_own(
        self, tmp_path: Path, clock: FakeClock
    ) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as store:
            scene = StoreHarness(store, clock)
            mine, lost = await scene.create_running(), await scene.create_running()
            await scene.apply(lost, Cancel("alice"))
            until = clock.now() + 9 * LEASE
            held = [HeldAttempt(task.id, task.attempt_number) for task in (mine, lost)]

            async def heartbeat() -> frozenset[TaskId]:
                twin = store.new_handle()
                await twin.open()
                try:
                    return await twin.extend_leases(held, until=until)
                finally:
                    await twin.close()

            assert await asyncio.to_thread(asyncio.run, heartbeat()) == {lost.id}
            extended = await scene.load(mine)
            assert extended.attempt is not None
            assert extended.attempt.lease.expires_at == until
            await check_invariants(store)

    async def test_two_who_write_in_threads_of_their_own_lose_nothing(self, tmp_path: Path, clock: FakeClock) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as store:

            async def create(name: str) -> None:
                twin = store.new_handle()
                await twin.open()
                for number in range(20):
                    await StoreHarness(twin, clock).create(id=TaskId(f"{name} {number}"))
                await twin.close()

            await asyncio.gather(*(asyncio.to_thread(asyncio.run, create(name)) for name in ("one", "two")))
            assert await store.count_live(EVERYTHING) == {Phase.QUEUED: 40}

    async def test_a_store_that_is_not_shared_has_no_twin(self, store: Store) -> None:
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

    async def test_a_listener_hears_of_what_another_handle_does(self, tmp_path: Path, clock: FakeClock) -> None:
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
