"""Contract for durable data that outlives a handle, and for several handles on the same data."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Resume
from raincheck.core.lifecycle import Phase
from raincheck.core.policies import Quota
from raincheck.core.records import Task, TaskId
from raincheck.core.values import encode
from raincheck.errors import LeaseLost, QuotaExceeded, StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANY_TASK
from raincheck.stores.requests import HeldAttempt
from raincheck.testing.clock import FakeClock
from raincheck.testing.harness import EVERYTHING, LEASE, StoreHarness
from raincheck.testing.invariants import check_invariants
from raincheck.testing.store_contract.base import Handles, StoreContractBase, use_in_thread


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
            view = await harness.view(ended)
            assert (view.task, view.outcome) == (ended, encode("done"))
            await harness.answer(parked, {"publish": encode(1)})
            (again,) = await harness.claim()
            journal = await harness.journal(again)
            assert [step.name for step in journal.steps] == ["load"]
            await check_invariants(store)

    async def test_another_handle_takes_over_the_tasks_of_a_dead_one(self, handles: Handles) -> None:
        dead, alive = handles
        held = await dead.create_running()
        dead.clock.advance(LEASE.total_seconds())
        await alive.sweep()
        (again,) = await alive.claim(holder="worker-2")
        with pytest.raises(LeaseLost):
            await dead.apply(held, Complete(1, encode("stale")))
        await alive.apply(again, Complete(2, encode("done")))

    async def test_handles_that_race_for_work_never_share_a_task(self, handles: Handles) -> None:
        for _ in range(30):
            await handles[0].create()

        async def work(harness: StoreHarness) -> list[str]:
            mine: list[str] = []
            while claimed := await harness.claim(limit=2):
                mine += [task.id for task in claimed]
            return mine

        first, second = await asyncio.gather(*map(work, handles))
        assert len(first) + len(second) == len({*first, *second}) == 30

    async def test_handles_that_race_to_end_a_task_agree_on_the_winner(self, handles: Handles) -> None:
        one, two = handles
        for number in range(10):
            task = await one.create_running(id=TaskId(f"task {number}"))
            ends = one.apply(task, Complete(1, encode("done"))), two.apply(task, Cancel("alice"))
            outcomes = await asyncio.gather(*ends, return_exceptions=True)
            winners = [outcome for outcome in outcomes if isinstance(outcome, Task)]
            assert len(winners) == 1
            assert await two.load(task) == await one.load(task) == winners[0]

    async def test_racing_handles_do_not_exceed_the_live_quota(self, handles: Handles) -> None:
        creates = (
            harness.create(id=TaskId(f"task {number}"), quota=Quota(live=5))
            for number, harness in enumerate(handles * 10)
        )
        outcomes = await asyncio.gather(*creates, return_exceptions=True)
        assert sum(isinstance(outcome, QuotaExceeded) for outcome in outcomes) == 15
        assert await handles[0].store.count_live(EVERYTHING) == {Phase.QUEUED: 5}

    async def test_a_new_handle_extends_leases_from_another_thread_and_event_loop(self, harness: StoreHarness) -> None:
        self.require(shared=True)
        mine, lost = await harness.create_running(), await harness.create_running()
        await harness.apply(lost, Cancel("alice"))
        until = harness.clock.now() + 9 * LEASE
        held = [HeldAttempt(task.id, task.attempt_number) for task in (mine, lost)]

        async def extend(handle: Store) -> frozenset[TaskId]:
            return await handle.extend_leases(held, until=until)

        assert await use_in_thread(harness.store, extend) == {lost.id}
        extended = await harness.load(mine)
        assert extended.attempt is not None
        assert extended.attempt.lease.expires_at == until

    async def test_handles_that_write_in_separate_threads_lose_nothing(self, store: Store, clock: FakeClock) -> None:
        self.require(shared=True)

        async def create(name: str, handle: Store) -> None:
            for number in range(20):
                await StoreHarness(handle, clock).create(id=TaskId(f"{name} {number}"))

        await asyncio.gather(*(use_in_thread(store, partial(create, name)) for name in ("one", "two")))
        assert await store.count_live(EVERYTHING) == {Phase.QUEUED: 40}

    async def test_only_a_shared_store_makes_new_handles(self, store: Store) -> None:
        if store.capabilities.shared:
            assert store.new_handle() is not store
        else:
            with pytest.raises(StoreUnavailable):
                store.new_handle()

    async def test_closing_one_handle_ends_only_its_own_feeds(self, tmp_path: Path, harness: StoreHarness) -> None:
        self.require(shared=True)
        with harness.store.listen() as feed:
            async with self.open_store(tmp_path):
                pass
            task = await harness.create()
            async with asyncio.timeout(10):
                while task.id not in await anext(feed):
                    pass

    async def test_the_change_feed_reports_changes_of_another_handle(self, handles: Handles) -> None:
        one, two = handles
        task = await one.create()
        with two.store.listen() as feed:
            # A hint without task ids may be left from before the first change, so one change would prove nothing.
            for command in (Pause("alice"), Resume("alice"), Cancel("alice")):
                changed = await one.apply(task, command)
                async with asyncio.timeout(10):
                    async for hint in feed:
                        if hint == ANY_TASK or task.id in hint:
                            break
                assert await two.load(task) == changed
