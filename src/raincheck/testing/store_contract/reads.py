"""Contract for reads and change feeds.

A read shows only tasks inside its scope, and a list shows each task once. A feed reports every change to its
listeners, and costs nothing without listeners.
"""

import asyncio
from collections.abc import Awaitable

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, OwnerKind, Scope
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.records import Task, TaskId, Tool
from raincheck.core.values import encode
from raincheck.errors import StaleChange, TaskNotFound
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANY_TASK, ChangeFeed
from raincheck.stores.commit import answer, apply
from raincheck.stores.requests import PAGE_LIMIT, HeldAttempt, Page, PageCursor, TaskQuery
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, LEASE, NAMESPACE, StoreHarness, wait_for_hint
from raincheck.testing.store_contract.base import StoreContractBase, hinted_during

ALICES = Scope.for_owner(NAMESPACE, ALICE)


async def collect_read_errors(harness: StoreHarness, task_id: TaskId, scope: Scope) -> list[str]:
    """Return the errors of all methods that take an id and a scope."""
    store, now = harness.store, harness.clock.now()
    operations = [
        store.load(task_id, scope, now=now),
        store.view(task_id, scope, now=now),
        store.journal(task_id, scope, now=now),
        store.artifact(task_id, "report", scope, now=now),
        store.history(task_id, scope, now=now),
        apply(store, task_id, scope, Cancel("thief"), now=now),
        answer(store, task_id, scope, {"key": encode(1)}, actor="thief", now=now),
    ]
    errors: list[str] = []
    for operation in operations:
        with pytest.raises(TaskNotFound) as caught:
            await operation
        errors.append(str(caught.value).replace(task_id, "ID"))
    return errors


class ReadContract(StoreContractBase):
    async def test_another_owners_task_looks_exactly_like_an_unknown_one(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        unknown = await collect_read_errors(harness, TaskId("no-such-id"), Scope.for_owner(NAMESPACE, BOB))
        foreign = await collect_read_errors(harness, task.id, Scope.for_owner(NAMESPACE, BOB))
        elsewhere = await collect_read_errors(harness, task.id, Scope.for_owner("elsewhere", ALICE))
        assert foreign == elsewhere == unknown
        assert await harness.load(task, ALICES) == task

    async def test_an_expired_task_looks_exactly_like_an_unknown_one(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        ended = await harness.apply(task, Complete(1, encode(1)))
        harness.jump_to_expiry(ended)
        harness.clock.advance(-0.000_001)
        assert await harness.load(task, ALICES) == ended
        harness.jump_to_expiry(ended)
        expired = await collect_read_errors(harness, task.id, ALICES)
        assert expired == await collect_read_errors(harness, TaskId("no-such-id"), ALICES)
        assert await harness.ids(TaskQuery(ALICES)) == []

    @pytest.mark.parametrize("task_id", ["", "\ud800", "\0", "x" * 100_000, "task-0001 ", "TASK-0001", "'", "%"])
    async def test_reads_accept_any_text_as_an_id(self, harness: StoreHarness, task_id: str) -> None:
        await harness.create()
        with pytest.raises(TaskNotFound):
            await harness.store.load(TaskId(task_id), EVERYTHING, now=harness.clock.now())

    async def test_reads_accept_any_text_as_a_namespace(self, harness: StoreHarness) -> None:
        task = await harness.create()
        for namespace in ("", "\ud800", "\0", NAMESPACE + " "):
            with pytest.raises(TaskNotFound):
                await harness.load(task, Scope.for_namespace(namespace))
            assert await harness.ids(TaskQuery(Scope.for_namespace(namespace))) == []

    async def test_reading_changes_nothing(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        for _ in range(3):
            harness.clock.advance(5)
            await harness.store.view(task.id, ALICES, now=harness.clock.now())
            await harness.store.journal(task.id, ALICES, now=harness.clock.now())
            await harness.ids(TaskQuery(ALICES))
        assert await harness.load(task) == task

    async def test_a_list_shows_the_newest_first_and_only_what_the_scope_covers(self, harness: StoreHarness) -> None:
        mine = [await harness.create_later() for _ in range(3)]
        other_owner = await harness.create_later(owner=BOB)
        elsewhere = await harness.create_later(namespace="elsewhere")
        newest_first = [task.id for task in reversed(mine)]
        assert await harness.ids(TaskQuery(ALICES)) == newest_first
        assert await harness.ids(TaskQuery(Scope.for_namespace(NAMESPACE))) == [other_owner.id, *newest_first]
        assert await harness.ids(TaskQuery(Scope(None, ALICE))) == [elsewhere.id, *newest_first]
        assert await harness.ids(TaskQuery(EVERYTHING)) == [elsewhere.id, other_owner.id, *newest_first]

    async def test_a_list_can_be_narrowed_by_tool_phase_and_parent(self, harness: StoreHarness) -> None:
        plain = await harness.create_later()
        other = await harness.create_later(tool=Tool("other"))
        child = await harness.create_later(parent_id=plain.id)
        foreign = await harness.create_later(parent_id=plain.id, owner=BOB)
        await harness.apply(other, Cancel("alice"))
        assert await harness.ids(TaskQuery(ALICES, tool="other")) == [other.id]
        assert await harness.ids(TaskQuery(ALICES, parent_id=plain.id)) == [child.id]
        assert await harness.ids(TaskQuery(EVERYTHING, parent_id=plain.id)) == [foreign.id, child.id]
        live = frozenset({Phase.QUEUED, Phase.RUNNING})
        assert await harness.ids(TaskQuery(ALICES, phases=live)) == [child.id, plain.id]
        assert await harness.ids(TaskQuery(ALICES, phases=frozenset())) == []
        assert await harness.ids(TaskQuery(ALICES, tool="\ud800")) == []

    async def test_paging_shows_each_task_that_existed_throughout_exactly_once(self, harness: StoreHarness) -> None:
        # Many share a creation time, so that a page ends between two that differ by id alone.
        tasks: list[Task] = []
        for number in range(25):
            tasks.append(await harness.create())
            harness.clock.advance(number % 5 == 0)
        seen: list[str] = []
        position: PageCursor | None = None
        while True:
            page = await harness.page(TaskQuery(ALICES), after=position, limit=4)
            seen += [task.id for task in page.tasks]
            position = page.next
            if position is None:
                break
            # Meanwhile other tasks are created and changed.
            await harness.create()
            await harness.apply(tasks[len(seen) % 25], Pause("alice"))
            harness.clock.advance(1)
        assert sorted(seen) == sorted(task.id for task in tasks)

    async def test_only_the_last_page_has_no_next_cursor(self, harness: StoreHarness) -> None:
        for _ in range(4):
            await harness.create()
        assert (await harness.page(TaskQuery(ALICES), limit=4)).next is None
        assert (await harness.page(TaskQuery(ALICES), limit=3)).next is not None

    @pytest.mark.parametrize("limit", [-1, 0, 1, PAGE_LIMIT + 1, 10**30])
    async def test_a_page_is_neither_empty_nor_unbounded_for_any_limit(self, harness: StoreHarness, limit: int) -> None:
        for _ in range(2):
            await harness.create()
        page = await harness.page(TaskQuery(ALICES), limit=limit)
        assert len(page.tasks) == (1 if limit < 2 else 2)

    @pytest.mark.parametrize("limit", [-1, 0, 1])
    async def test_overdue_and_expired_tasks_are_found_at_least_one_at_a_time(
        self, harness: StoreHarness, limit: int
    ) -> None:
        for _ in range(2):
            await harness.create_running()
            await harness.apply(await harness.create(), Cancel("alice"))
        now = harness.clock.advance(10_000_000)
        assert len(await harness.store.list_overdue(now=now, limit=limit)) == 1
        assert len(await harness.store.list_overdue(now=now, limit=10**30)) == 2
        assert len(await harness.store.prune(now=now, limit=limit)) == 1
        assert len(await harness.store.prune(now=now, limit=10**30)) == 1

    async def test_history_beyond_its_end_is_empty(self, harness: StoreHarness) -> None:
        task = await harness.create()
        for after in (1, 10**30):
            assert await harness.store.history(task.id, EVERYTHING, now=harness.clock.now(), after=after) == ()

    async def test_a_page_cursor_outlives_the_task_it_names(self, harness: StoreHarness) -> None:
        old, middle, _new = [await harness.create_later() for _ in range(3)]
        ended = await harness.apply(middle, Cancel("alice"))
        await harness.store.prune(now=harness.jump_to_expiry(ended), limit=1)
        page = await harness.page(TaskQuery(ALICES), after=PageCursor.of(middle))
        assert [task.id for task in page.tasks] == [old.id]

    async def test_nothing_is_ever_listed_for_an_anonymous_caller(self, harness: StoreHarness) -> None:
        anonymous = Scope.for_owner(NAMESPACE, Owner.anonymous())
        task = await harness.create(owner=Owner.anonymous())
        assert await harness.page(TaskQuery(anonymous)) == Page((), None)
        assert await harness.store.count_live(anonymous) == {}
        assert await harness.load(task, anonymous) == task

    async def test_an_anonymous_session_sees_its_own_tasks(self, harness: StoreHarness) -> None:
        one, two = (Owner(OwnerKind.SESSION, (name,)) for name in ("one", "two"))
        task = await harness.create(owner=one)
        assert await harness.ids(TaskQuery(Scope.for_owner(NAMESPACE, one))) == [task.id]
        assert await harness.ids(TaskQuery(Scope.for_owner(NAMESPACE, two))) == []

    async def test_live_tasks_are_counted_by_phase_and_within_the_scope(self, harness: StoreHarness) -> None:
        running, parked, ended = [await harness.create_running() for _ in range(3)]
        await harness.apply(parked, Park(1, seen_signals=0))
        await harness.apply(ended, Complete(1, encode(1)))
        await harness.create()
        await harness.create(owner=BOB)
        await harness.create(namespace="elsewhere")
        await harness.apply(running, Note(1, status_message="working"))
        counts = {Phase.RUNNING: 1, Phase.PARKED: 1, Phase.QUEUED: 1}
        assert await harness.store.count_live(ALICES) == counts
        assert await harness.store.count_live(Scope.for_namespace(NAMESPACE)) == counts | {Phase.QUEUED: 2}
        assert await harness.store.count_live(EVERYTHING) == counts | {Phase.QUEUED: 3}


async def expect_hint(feed: ChangeFeed, task_id: TaskId, operation: Awaitable[object]) -> None:
    """Await an operation, then wait until the feed names the task."""
    await operation
    await wait_for_hint(feed, task_id)


class ChangeFeedContract(StoreContractBase):
    async def test_the_change_feed_reports_every_kind_of_change(self, harness: StoreHarness) -> None:
        with harness.store.listen() as feed:
            creation = harness.creation(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
            task = creation.task
            child = harness.creation(parent_id=task.id)
            await expect_hint(feed, task.id, harness.create(id=task.id, retry=task.retry))
            await expect_hint(feed, task.id, harness.claim())
            await expect_hint(feed, child.task.id, harness.apply(task, Note(1, spawned=(child,))))
            harness.clock.advance(LEASE.total_seconds())
            await expect_hint(feed, task.id, harness.sweep())
            now = harness.jump_to_expiry(await harness.load(task))
            await expect_hint(feed, task.id, harness.store.prune(now=now, limit=10))

    async def test_a_reported_change_can_be_read_immediately(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        with harness.store.listen() as feed:
            await expect_hint(feed, task.id, harness.apply(task, Complete(1, encode(1))))
            assert (await harness.load(task)).is_terminal

    async def test_every_listener_gets_the_change(self, harness: StoreHarness) -> None:
        task = await harness.create()
        with harness.store.listen() as one, harness.store.listen() as two:
            await expect_hint(one, task.id, harness.apply(task, Cancel("alice")))
            await expect_hint(two, task.id, asyncio.sleep(0))

    async def test_the_change_feed_reports_neither_heartbeats_nor_lost_races(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        stale = await harness.create_running()
        late = harness.decide(stale, Complete(1, encode("late")))
        await harness.apply(stale, Cancel("alice"))
        held_attempts = [HeldAttempt(task.id, task.attempt_number)]

        async def operate() -> None:
            await harness.store.extend_leases(held_attempts, until=harness.clock.now() + LEASE)
            with pytest.raises(StaleChange):
                await harness.store.commit([late])

        assert await hinted_during(harness, operate()) == set()

    async def test_a_feed_with_too_many_changes_reports_any_task(self, harness: StoreHarness) -> None:
        with harness.store.listen() as feed:
            for number in range(10_001):
                feed.publish(frozenset({TaskId(f"task {number}")}))
            async with asyncio.timeout(10):
                assert await anext(feed) == ANY_TASK

    async def test_closing_the_store_ends_the_feeds(self, store: Store) -> None:
        with store.listen() as feed:
            waiting = asyncio.ensure_future(self.drain(feed))
            await store.close()
            async with asyncio.timeout(10):
                await waiting
        await store.open()

    async def drain(self, feed: ChangeFeed) -> None:
        async for _ in feed:
            pass
