"""Contract for the queue: owners take turns, priority comes first, and a worker can read when work is next due."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Release, Signal
from raincheck.core.owner import Owner
from raincheck.core.records import Task, TaskId, Tool
from raincheck.core.values import encode
from raincheck.stores.requests import DUE_NOW, ClaimRequest
from raincheck.testing.harness import ALICE, BOB, LEASE, NAMESPACE, TOOL, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase

MANY = 200
CAROL, DAN, EVE = (Owner.token("https://issuer.example", name) for name in ("carol", "dan", "eve"))
PATIENT = (BOB, CAROL, DAN)
"""Owners that have one task in the queue at a time."""

OTHER = Tool("other")
OLD = Tool(TOOL.name, "0")
"""A version that no worker has."""


class FairQueueContract(StoreContractBase):
    async def test_many_tasks_of_one_owner_do_not_delay_the_task_of_another(self, harness: StoreHarness) -> None:
        await self.fill(harness, MANY)
        late = await harness.create(owner=BOB)
        assert late.id in await self.taken(harness, 3)

    async def test_an_owner_that_arrives_in_the_middle_waits_for_few_tasks(self, harness: StoreHarness) -> None:
        await self.fill(harness, MANY)
        await self.taken(harness, MANY // 2)
        late = [await harness.create(owner=BOB) for _ in range(2)]
        taken = await self.taken(harness, 5)
        assert {task.id for task in late} <= set(taken)

    async def test_two_owners_with_many_tasks_take_turns(self, harness: StoreHarness) -> None:
        await self.fill(harness, 20)
        await self.fill(harness, 20, owner=BOB)
        claimed = [(await harness.claim())[0].owner for _ in range(20)]
        assert [claimed[:number].count(BOB) - number // 2 for number in range(0, 21, 2)] == [0] * 11

    async def test_an_owner_with_one_queued_task_at_a_time_gets_the_same_share_as_one_with_many(
        self, harness: StoreHarness
    ) -> None:
        await self.fill(harness, MANY)
        shares = await self.shares(harness, 80)
        assert 15 <= min(shares) <= max(shares) <= 25

    @pytest.mark.parametrize("owner", [ALICE, BOB, EVE], ids=["many tasks", "one task", "no tasks"])
    async def test_a_task_that_no_worker_can_run_does_not_affect_the_shares(
        self, harness: StoreHarness, owner: Owner
    ) -> None:
        await harness.create(owner=owner, tool=OLD)
        await self.fill(harness, MANY)
        shares = await self.shares(harness, 80)
        assert 15 <= min(shares) <= max(shares) <= 25

    async def test_claims_of_another_tool_do_not_delay_any_owner(self, harness: StoreHarness) -> None:
        await self.fill(harness, MANY)
        await harness.create(tool=OTHER)
        assert len(await harness.claim(tools=frozenset({OTHER}))) == 1
        late = await harness.create(owner=EVE)
        assert late.id in await self.taken(harness, 3)
        assert min(await self.shares(harness, 80)) >= 15

    async def test_a_worker_of_a_slower_tool_does_not_reset_the_queue(self, harness: StoreHarness) -> None:
        await self.fill(harness, 5)
        _, waiting = await self.fill(harness, 2, tool=OTHER)
        await harness.claim(tools=frozenset({OTHER}))
        await harness.claim()
        late = await harness.create(owner=BOB, tool=OTHER)
        claimed = await harness.claim(limit=2, tools=frozenset({OTHER}))
        assert [task.id for task in claimed] == [waiting.id, late.id]

    async def test_turns_of_cancelled_tasks_go_to_later_tasks(self, harness: StoreHarness) -> None:
        for task in (await self.fill(harness, 10))[:5]:
            await harness.apply(task, Cancel("alice"))
        late = await self.fill(harness, 5, owner=BOB)
        assert await self.taken(harness, 5) == [task.id for task in late]

    async def test_pruning_does_not_reset_how_far_a_queue_was_served(self, harness: StoreHarness) -> None:
        tasks = await self.fill(harness, 20)
        served = await self.taken(harness, 10)
        harness.clock.advance(timedelta(days=1_000).total_seconds())
        assert set(await harness.store.prune(now=harness.clock.now(), limit=100)) == set(served)
        late = await harness.create(owner=BOB)
        assert await self.taken(harness, 3) == [tasks[10].id, late.id, tasks[11].id]

    async def test_one_claim_of_many_tasks_takes_turns_like_many_claims_of_one(self, harness: StoreHarness) -> None:
        await self.fill(harness, 10)
        await self.fill(harness, 10, owner=BOB)
        owners = [task.owner for task in await harness.claim(limit=10)]
        assert (owners.count(ALICE), owners.count(BOB)) == (5, 5)

    async def test_one_claim_of_many_tasks_advances_the_queue_like_many_claims_of_one(
        self, harness: StoreHarness
    ) -> None:
        tasks = await self.fill(harness, 20)
        await harness.claim(limit=10)
        late = await harness.create(owner=BOB)
        assert await self.taken(harness, 3) == [tasks[10].id, late.id, tasks[11].id]

    async def test_an_owner_that_was_idle_gets_no_more_than_one_extra_turn(self, harness: StoreHarness) -> None:
        await self.fill(harness, 20)
        await self.taken(harness, 10)
        await self.fill(harness, 20, owner=BOB)
        owners = [(await harness.claim())[0].owner for _ in range(10)]
        assert owners.count(ALICE) in (4, 5)

    async def test_an_answered_task_resumes_before_its_owners_new_tasks(self, harness: StoreHarness) -> None:
        waiting = await harness.create_running()
        await harness.apply(waiting, Note(1, input_requests=(harness.input_request("sure"),)))
        await harness.apply(waiting, Park(1, seen_signals=0))
        await self.fill(harness, MANY)
        await self.taken(harness, MANY // 2)
        await harness.answer(waiting, {"sure": encode("yes")})
        assert waiting.id in await self.taken(harness, 2)

    async def test_many_tasks_due_at_once_do_not_delay_another_owner(self, harness: StoreHarness) -> None:
        due_at = harness.clock.now() + timedelta(seconds=60)
        await self.fill(harness, MANY, due_at=due_at)
        harness.clock.jump_to(due_at)
        await harness.claim()
        late = await harness.create(owner=BOB)
        assert late.id in await self.taken(harness, 3)

    async def test_many_resumed_tasks_do_not_delay_another_owners_resumed_task(self, harness: StoreHarness) -> None:
        mine = await harness.create_running(owner=BOB)
        await self.fill(harness, MANY)
        for task in await harness.claim(limit=MANY):
            await harness.apply(task, Release(1))
        await harness.apply(mine, Release(1))
        assert mine.id in await self.taken(harness, 2)

    async def test_priority_comes_before_turns(self, harness: StoreHarness) -> None:
        await self.fill(harness, 5, priority=1)
        low = await harness.create(owner=BOB)
        assert (await self.taken(harness, 6))[-1] == low.id

    @pytest.mark.parametrize("apart", [{"namespace": "elsewhere"}, {"priority": -1}], ids=["namespace", "priority"])
    async def test_tasks_in_another_queue_do_not_affect_the_turns(
        self, harness: StoreHarness, apart: dict[str, Any]
    ) -> None:
        await self.fill(harness, 10, owner=BOB, **apart)
        tasks = await self.fill(harness, 5)
        await self.taken(harness, 3)
        late = await harness.create(owner=BOB)
        assert await self.taken(harness, 3) == [tasks[3].id, late.id, tasks[4].id]

    @pytest.mark.parametrize(
        "apart", [{"namespace": "elsewhere"}, {"priority": 1, "tool": OTHER}], ids=["namespace", "priority"]
    )
    async def test_a_queue_is_served_independently_of_other_queues(
        self, harness: StoreHarness, apart: dict[str, Any]
    ) -> None:
        await self.fill(harness, 10, **apart)
        tasks = await self.fill(harness, 5)
        await self.taken(harness, 3)
        tools = frozenset({apart.get("tool", TOOL)})
        request = ClaimRequest(apart.get("namespace", NAMESPACE), tools, "worker-2", LEASE, 9)
        assert len(await harness.store.claim(request, now=harness.clock.now())) == 9
        late = await harness.create(owner=BOB)
        assert await self.taken(harness, 3) == [tasks[3].id, late.id, tasks[4].id]

    async def test_a_signal_does_not_change_the_place_of_a_queued_task(self, harness: StoreHarness) -> None:
        first, second = await harness.create(), await harness.create()
        await harness.apply(first, Signal("child", "a child ended"))
        assert await self.taken(harness, 2) == [first.id, second.id]

    async def test_an_owners_own_tasks_stay_in_order(self, harness: StoreHarness) -> None:
        tasks = await self.fill(harness, 20)
        await harness.apply(tasks[0], Cancel("alice"))
        assert await self.taken(harness, 19) == [task.id for task in tasks[1:]]

    async def test_next_due_is_none_without_a_claimable_task(self, harness: StoreHarness) -> None:
        assert await self.next_due(harness) is None
        await harness.create(tool=Tool("other"))
        await harness.create(tool=Tool(TOOL.name, "2"), due_at=harness.clock.now() + timedelta(seconds=1))
        await harness.create(namespace="elsewhere")
        running = await harness.create_running()
        parked = await harness.apply(await harness.create_running(), Park(1, seen_signals=0))
        await harness.apply(await harness.create(), Pause("operator"))
        assert await self.next_due(harness) is None
        assert await harness.store.next_due(NAMESPACE, frozenset()) is None
        for task in (running, parked):
            await harness.apply(task, Cancel("alice"))
        assert await self.next_due(harness) is None

    async def test_next_due_is_the_due_time_of_the_first_parked_task(self, harness: StoreHarness) -> None:
        soon = harness.clock.now() + timedelta(seconds=5, microseconds=1)
        await harness.create(due_at=soon + timedelta(seconds=1))
        await harness.create(due_at=soon)
        assert await self.next_due(harness) == soon
        harness.clock.advance(60)
        assert await self.next_due(harness) == soon

    async def test_next_due_is_now_while_a_task_is_queued(self, harness: StoreHarness) -> None:
        await harness.create(due_at=harness.clock.now() + timedelta(seconds=60))
        await harness.create()
        harness.clock.advance(-3_600)
        assert await self.next_due(harness) == DUE_NOW
        assert len(await harness.claim()) == 1

    async def test_reading_the_next_due_time_changes_nothing(self, harness: StoreHarness) -> None:
        tasks = [await harness.create(), await harness.create(due_at=harness.clock.now() + timedelta(seconds=1))]
        harness.clock.advance(1)
        await self.next_due(harness)
        assert [await harness.load(task) for task in tasks] == tasks

    async def fill(self, harness: StoreHarness, count: int, owner: Owner = ALICE, **fields: Any) -> Sequence[Task]:  # noqa: ANN401 - the fields of NewTask
        # One after the other: of several created concurrently, any may be first in the queue.
        return [await harness.create(owner=owner, **fields) for _ in range(count)]

    async def taken(self, harness: StoreHarness, count: int) -> list[TaskId]:
        """Claim the next tasks, one at a time, and return their ids. Each ends at once, so that it delays none."""
        ids: list[TaskId] = []
        for _ in range(count):
            (task,) = await harness.claim()
            await harness.apply(task, Complete(task.attempt_number, encode("done")))
            ids.append(task.id)
        return ids

    async def shares(self, harness: StoreHarness, claims: int) -> list[int]:
        """Return how many claims go to Alice, and to each patient owner, which always has one task queued."""
        for owner in PATIENT:
            await harness.create(owner=owner)
        counts: Counter[Owner] = Counter()
        for _ in range(claims):
            (task,) = await harness.claim()
            await harness.apply(task, Complete(task.attempt_number, encode("done")))
            counts[task.owner] += 1
            if task.owner in PATIENT:
                await harness.create(owner=task.owner)
        return [counts[owner] for owner in (ALICE, *PATIENT)]

    async def next_due(self, harness: StoreHarness) -> datetime | None:
        return await harness.store.next_due(NAMESPACE, frozenset({TOOL, Tool("third")}))
