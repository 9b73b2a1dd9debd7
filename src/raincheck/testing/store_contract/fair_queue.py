"""Contract for the queue: owners take turns, priority comes first, and a worker can read when work is next due."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Release, Signal
from raincheck.core.owner import Owner
from raincheck.core.payload import encode
from raincheck.core.records import Task, TaskId, Tool
from raincheck.stores.commit import answer
from raincheck.stores.requests import DUE_NOW, ClaimRequest
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, LEASE, NAMESPACE, TOOL, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase

MANY = 200
CAROL, DAN, EVE = (Owner.token("https://issuer.example", name) for name in ("carol", "dan", "eve"))
PATIENT = (BOB, CAROL, DAN)
"""Owners that have one task in the queue at a time."""

OTHER = Tool("other")
OLD = Tool(TOOL.name, "0")
"""A version that no worker has any more."""


class FairQueueContract(StoreContractBase):
    async def test_ones_thousands_do_not_hold_up_anothers_one(self, scene: StoreHarness) -> None:
        await self.fill(scene, MANY)
        late = await scene.create(owner=BOB)
        assert late.id in await self.taken(scene, 3)

    async def test_who_comes_in_the_middle_waits_for_a_few_places_too(self, scene: StoreHarness) -> None:
        await self.fill(scene, MANY)
        await self.taken(scene, MANY // 2)
        late = [await scene.create(owner=BOB) for _ in range(2)]
        taken = await self.taken(scene, 5)
        assert {task.id for task in late} <= set(taken)

    async def test_two_who_have_much_take_turns(self, scene: StoreHarness) -> None:
        await self.fill(scene, 20)
        await self.fill(scene, 20, owner=BOB)
        claimed = [(await scene.claim())[0].owner for _ in range(20)]
        assert [claimed[:number].count(BOB) - number // 2 for number in range(0, 21, 2)] == [0] * 11

    async def test_who_asks_for_one_at_a_time_gets_as_much_as_who_asks_for_all_at_once(
        self, scene: StoreHarness
    ) -> None:
        await self.fill(scene, MANY)
        shares = await self.shares(scene, 80)
        assert 15 <= min(shares) <= max(shares) <= 25

    @pytest.mark.parametrize("owner", [ALICE, BOB, EVE], ids=["who has many", "who asks for one", "another"])
    async def test_a_task_that_nobody_can_run_changes_nothing_for_those_that_can(
        self, scene: StoreHarness, owner: Owner
    ) -> None:
        await scene.create(owner=owner, tool=OLD)
        await self.fill(scene, MANY)
        shares = await self.shares(scene, 80)
        assert 15 <= min(shares) <= max(shares) <= 25

    async def test_what_a_worker_of_another_tool_takes_puts_nobody_behind(self, scene: StoreHarness) -> None:
        await self.fill(scene, MANY)
        await scene.create(tool=OTHER)
        assert len(await scene.claim(tools=frozenset({OTHER}))) == 1
        late = await scene.create(owner=EVE)
        assert late.id in await self.taken(scene, 3)
        assert min(await self.shares(scene, 80)) >= 15

    async def test_a_worker_that_lags_behind_does_not_take_the_line_back(self, scene: StoreHarness) -> None:
        await self.fill(scene, 5)
        _, waiting = await self.fill(scene, 2, tool=OTHER)
        await scene.claim(tools=frozenset({OTHER}))
        await scene.claim()
        late = await scene.create(owner=BOB, tool=OTHER)
        claimed = await scene.claim(limit=2, tools=frozenset({OTHER}))
        assert [task.id for task in claimed] == [waiting.id, late.id]

    async def test_turns_that_were_given_up_are_left_to_whoever_comes(self, scene: StoreHarness) -> None:
        for task in (await self.fill(scene, 10))[:5]:
            await scene.apply(task, Cancel("alice"))
        late = await self.fill(scene, 5, owner=BOB)
        assert await self.taken(scene, 5) == [task.id for task in late]

    async def test_how_far_a_line_was_served_is_known_when_what_was_served_is_forgotten(
        self, scene: StoreHarness
    ) -> None:
        tasks = await self.fill(scene, 20)
        served = await self.taken(scene, 10)
        scene.clock.advance(timedelta(days=1_000).total_seconds())
        assert set(await scene.store.prune(now=scene.clock.now(), limit=100)) == set(served)
        late = await scene.create(owner=BOB)
        assert await self.taken(scene, 3) == [tasks[10].id, late.id, tasks[11].id]

    async def test_one_claim_of_many_takes_turns_as_many_claims_of_one_do(self, scene: StoreHarness) -> None:
        await self.fill(scene, 10)
        await self.fill(scene, 10, owner=BOB)
        owners = [task.owner for task in await scene.claim(limit=10)]
        assert (owners.count(ALICE), owners.count(BOB)) == (5, 5)

    async def test_one_claim_of_many_serves_a_line_as_far_as_many_claims_of_one_do(self, scene: StoreHarness) -> None:
        tasks = await self.fill(scene, 20)
        await scene.claim(limit=10)
        late = await scene.create(owner=BOB)
        assert await self.taken(scene, 3) == [tasks[10].id, late.id, tasks[11].id]

    async def test_who_was_away_gets_no_more_than_a_turn_for_it(self, scene: StoreHarness) -> None:
        await self.fill(scene, 20)
        await self.taken(scene, 10)
        await self.fill(scene, 20, owner=BOB)
        owners = [(await scene.claim())[0].owner for _ in range(10)]
        assert owners.count(ALICE) in (4, 5)

    async def test_an_answered_task_goes_on_before_its_owners_new_ones(self, scene: StoreHarness) -> None:
        asking = await scene.create_running()
        await scene.apply(asking, Note(1, input_requests=(scene.input_request("sure"),)))
        await scene.apply(asking, Park(1, seen_signals=0))
        await self.fill(scene, MANY)
        await self.taken(scene, MANY // 2)
        now = scene.clock.now()
        await answer(scene.store, asking.id, EVERYTHING, {"sure": encode("yes")}, actor="alice", now=now)
        assert asking.id in await self.taken(scene, 2)

    async def test_many_that_wake_at_once_do_not_hold_up_another_owner(self, scene: StoreHarness) -> None:
        due_at = scene.clock.now() + timedelta(seconds=60)
        await self.fill(scene, MANY, due_at=due_at)
        scene.clock.jump_to(due_at)
        await scene.claim()
        late = await scene.create(owner=BOB)
        assert late.id in await self.taken(scene, 3)

    async def test_many_that_go_on_do_not_hold_up_another_owner_who_goes_on(self, scene: StoreHarness) -> None:
        mine = await scene.create_running(owner=BOB)
        await self.fill(scene, MANY)
        for task in await scene.claim(limit=MANY):
            await scene.apply(task, Release(1))
        await scene.apply(mine, Release(1))
        assert mine.id in await self.taken(scene, 2)

    async def test_priority_comes_before_turns(self, scene: StoreHarness) -> None:
        await self.fill(scene, 5, priority=1)
        low = await scene.create(owner=BOB)
        assert (await self.taken(scene, 6))[-1] == low.id

    @pytest.mark.parametrize("apart", [{"namespace": "elsewhere"}, {"priority": -1}], ids=["namespace", "priority"])
    async def test_what_waits_in_another_line_does_not_count(self, scene: StoreHarness, apart: dict[str, Any]) -> None:
        await self.fill(scene, 10, owner=BOB, **apart)
        tasks = await self.fill(scene, 5)
        await self.taken(scene, 3)
        late = await scene.create(owner=BOB)
        assert await self.taken(scene, 3) == [tasks[3].id, late.id, tasks[4].id]

    @pytest.mark.parametrize(
        "apart", [{"namespace": "elsewhere"}, {"priority": 1, "tool": OTHER}], ids=["namespace", "priority"]
    )
    async def test_how_far_another_line_is_served_does_not_count(
        self, scene: StoreHarness, apart: dict[str, Any]
    ) -> None:
        await self.fill(scene, 10, **apart)
        tasks = await self.fill(scene, 5)
        await self.taken(scene, 3)
        tools = frozenset({apart.get("tool", TOOL)})
        request = ClaimRequest(apart.get("namespace", NAMESPACE), tools, "worker-2", LEASE, 9)
        assert len(await scene.store.claim(request, now=scene.clock.now())) == 9
        late = await scene.create(owner=BOB)
        assert await self.taken(scene, 3) == [tasks[3].id, late.id, tasks[4].id]

    async def test_what_comes_to_a_queued_task_does_not_cost_it_its_place(self, scene: StoreHarness) -> None:
        first, second = await scene.create(), await scene.create()
        await scene.apply(first, Signal("child", "a child ended"))
        assert await self.taken(scene, 2) == [first.id, second.id]

    async def test_an_owners_own_tasks_stay_in_order(self, scene: StoreHarness) -> None:
        tasks = await self.fill(scene, 20)
        await scene.apply(tasks[0], Cancel("alice"))
        assert await self.taken(scene, 19) == [task.id for task in tasks[1:]]

    async def test_with_nothing_to_claim_there_is_nothing_to_wait_for(self, scene: StoreHarness) -> None:
        assert await self.next_due(scene) is None
        await scene.create(tool=Tool("other"))
        await scene.create(tool=Tool(TOOL.name, "2"), due_at=scene.clock.now() + timedelta(seconds=1))
        await scene.create(namespace="elsewhere")
        running = await scene.create_running()
        parked = await scene.apply(await scene.create_running(), Park(1, seen_signals=0))
        await scene.apply(await scene.create(), Pause("operator"))
        assert await self.next_due(scene) is None
        assert await scene.store.next_due(NAMESPACE, frozenset()) is None
        for task in (running, parked):
            await scene.apply(task, Cancel("alice"))
        assert await self.next_due(scene) is None

    async def test_a_parked_task_is_waited_for_until_it_is_due(self, scene: StoreHarness) -> None:
        soon = scene.clock.now() + timedelta(seconds=5, microseconds=1)
        await scene.create(due_at=soon + timedelta(seconds=1))
        await scene.create(due_at=soon)
        assert await self.next_due(scene) == soon
        scene.clock.advance(60)
        assert await self.next_due(scene) == soon

    async def test_a_queued_task_may_be_claimed_whatever_time_it_is(self, scene: StoreHarness) -> None:
        await scene.create(due_at=scene.clock.now() + timedelta(seconds=60))
        await scene.create()
        scene.clock.advance(-3_600)
        assert await self.next_due(scene) == DUE_NOW
        assert len(await scene.claim()) == 1

    async def test_looking_for_work_changes_nothing(self, scene: StoreHarness) -> None:
        tasks = [await scene.create(), await scene.create(due_at=scene.clock.now() + timedelta(seconds=1))]
        scene.clock.advance(1)
        await self.next_due(scene)
        assert [await scene.load(task) for task in tasks] == tasks

    async def fill(self, scene: StoreHarness, count: int, owner: Owner = ALICE, **fields: Any) -> Sequence[Task]:  # noqa: ANN401 - the fields of NewTask
        # One after the other: of several created concurrently, any may be first in the queue.
        return [await scene.create(owner=owner, **fields) for _ in range(count)]

    async def taken(self, scene: StoreHarness, count: int) -> list[TaskId]:
        """Claim the next tasks, one at a time, and return their ids. Each ends at once, so that it delays none."""
        ids: list[TaskId] = []
        for _ in range(count):
            (task,) = await scene.claim()
            await scene.apply(task, Complete(task.attempt_number, encode("done")))
            ids.append(task.id)
        return ids

    async def shares(self, scene: StoreHarness, claims: int) -> list[int]:
        """Return how many claims go to Alice, and to each patient owner, which always has one task queued."""
        for owner in PATIENT:
            await scene.create(owner=owner)
        got: Counter[Owner] = Counter()
        for _ in range(claims):
            (task,) = await scene.claim()
            await scene.apply(task, Complete(task.attempt_number, encode("done")))
            got[task.owner] += 1
            if task.owner in PATIENT:
                await scene.create(owner=task.owner)
        return [got[owner] for owner in (ALICE, *PATIENT)]

    async def next_due(self, scene: StoreHarness) -> datetime | None:
        return await scene.store.next_due(NAMESPACE, frozenset({TOOL, Tool("third")}))
