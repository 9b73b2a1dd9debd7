"""Contract for reads and change feeds.

A read shows only tasks inside its scope, and a list shows each task once. A feed reports every change to its
listeners, and costs nothing without listeners.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, OwnerKind, Scope
from raincheck.core.payload import encode
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.records import Task, TaskId, Tool
from raincheck.errors import StaleChange, TaskNotFound
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANY_TASK, ChangeFeed
from raincheck.stores.commit import answer, apply, sweep
from raincheck.stores.requests import PAGE_LIMIT, HeldAttempt, Page, PageCursor, TaskQuery
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, LEASE, NAMESPACE, StoreHarness, wait_for_hint
from raincheck.testing.store_contract.base import StoreContractBase

ALICES = Scope.for_owner(NAMESPACE, ALICE)


async def collect_read_errors(scene: StoreHarness, task_id: TaskId, scope: Scope) -> list[str]:
    """Return the errors of all methods that take an id and a scope."""
    store, now = scene.store, scene.clock.now()
    ways = [
        store.load(task_id, scope, now=now),
        store.view(task_id, scope, now=now),
        store.journal(task_id, scope, now=now),
        store.artifact(task_id, "report", scope, now=now),
        store.history(task_id, scope, now=now),
        apply(store, task_id, scope, Cancel("thief"), now=now),
        answer(store, task_id, scope, {"key": encode(1)}, actor="thief", now=now),
    ]
    errors: list[str] = []
    for way in ways:
        with pytest.raises(TaskNotFound) as caught:
            await way
        errors.append(str(caught.value).replace(task_id, "ID"))
    return errors


class ReadContract(StoreContractBase):
    async def test_another_owners_task_looks_exactly_like_an_unknown_one(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        unknown = await collect_read_errors(scene, TaskId("no-such-id"), Scope.for_owner(NAMESPACE, BOB))
        foreign = await collect_read_errors(scene, task.id, Scope.for_owner(NAMESPACE, BOB))
        elsewhere = await collect_read_errors(scene, task.id, Scope.for_owner("elsewhere", ALICE))
        assert foreign == elsewhere == unknown
        assert await scene.load(task, ALICES) == task

    async def test_an_expired_task_looks_exactly_like_an_unknown_one(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        ended = await scene.apply(task, Complete(1, encode(1)))
        assert ended.expires_at is not None
        scene.clock.jump_to(ended.expires_at - timedelta(microseconds=1))
        assert await scene.load(task, ALICES) == ended
        scene.clock.jump_to(ended.expires_at)
        expired = await collect_read_errors(scene, task.id, ALICES)
        assert expired == await collect_read_errors(scene, TaskId("no-such-id"), ALICES)
        assert await self.ids(scene, TaskQuery(ALICES)) == []

    @pytest.mark.parametrize("task_id", ["", "\ud800", "\0", "x" * 100_000, "task-0001 ", "TASK-0001", "'", "%"])
    async def test_any_text_may_be_asked_for_as_an_id(self, scene: StoreHarness, task_id: str) -> None:
        await scene.create()
        with pytest.raises(TaskNotFound):
            await scene.store.load(TaskId(task_id), EVERYTHING, now=scene.clock.now())

    async def test_any_text_may_be_asked_for_as_a_namespace(self, scene: StoreHarness) -> None:
        task = await scene.create()
        for namespace in ("", "\ud800", "\0", NAMESPACE + " "):
            with pytest.raises(TaskNotFound):
                await scene.load(task, Scope.for_namespace(namespace))
            assert await self.ids(scene, TaskQuery(Scope.for_namespace(namespace))) == []

    async def test_reading_changes_nothing(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        for _ in range(3):
            scene.clock.advance(5)
            await scene.store.view(task.id, ALICES, now=scene.clock.now())
            await scene.store.journal(task.id, ALICES, now=scene.clock.now())
            await self.ids(scene, TaskQuery(ALICES))
        assert await scene.load(task) == task

    async def test_a_list_shows_the_newest_first_and_only_what_the_scope_covers(self, scene: StoreHarness) -> None:
        mine = [await self.create_later(scene) for _ in range(3)]
        theirs = await self.create_later(scene, owner=BOB)
        elsewhere = await self.create_later(scene, namespace="elsewhere")
        newest_first = [task.id for task in reversed(mine)]
        assert await self.ids(scene, TaskQuery(ALICES)) == newest_first
        assert await self.ids(scene, TaskQuery(Scope.for_namespace(NAMESPACE))) == [theirs.id, *newest_first]
        assert await self.ids(scene, TaskQuery(Scope(None, ALICE))) == [elsewhere.id, *newest_first]
        assert await self.ids(scene, TaskQuery(EVERYTHING)) == [elsewhere.id, theirs.id, *newest_first]

    async def test_a_list_can_be_narrowed_by_tool_phase_and_parent(self, scene: StoreHarness) -> None:
        plain = await self.create_later(scene)
        other = await self.create_later(scene, tool=Tool("other"))
        child = await self.create_later(scene, parent_id=plain.id)
        foreign = await self.create_later(scene, parent_id=plain.id, owner=BOB)
        await scene.apply(other, Cancel("alice"))
        assert await self.ids(scene, TaskQuery(ALICES, tool="other")) == [other.id]
        assert await self.ids(scene, TaskQuery(ALICES, parent_id=plain.id)) == [child.id]
        assert await self.ids(scene, TaskQuery(EVERYTHING, parent_id=plain.id)) == [foreign.id, child.id]
        live = frozenset({Phase.QUEUED, Phase.RUNNING})
        assert await self.ids(scene, TaskQuery(ALICES, phases=live)) == [child.id, plain.id]
        assert await self.ids(scene, TaskQuery(ALICES, phases=frozenset())) == []
        assert await self.ids(scene, TaskQuery(ALICES, tool="\ud800")) == []

    async def test_paging_shows_each_task_that_existed_throughout_exactly_once(self, scene: StoreHarness) -> None:
        # Many share a creation time, so that a page ends between two that differ by id alone.
        tasks: list[Task] = []
        for number in range(25):
            tasks.append(await scene.create())
            scene.clock.advance(number % 5 == 0)
        seen: list[str] = []
        position: PageCursor | None = None
        while True:
            page = await self.page(scene, TaskQuery(ALICES), after=position, limit=4)
            seen += [task.id for task in page.tasks]
            position = page.next
            if position is None:
                break
            # Meanwhile other tasks are created and changed.
            await scene.create()
            await scene.apply(tasks[len(seen) % 25], Pause("alice"))
            scene.clock.advance(1)
        assert sorted(seen) == sorted(task.id for task in tasks)

    async def test_the_last_page_says_that_it_is_the_last(self, scene: StoreHarness) -> None:
        for _ in range(4):
            await scene.create()
        assert (await self.page(scene, TaskQuery(ALICES), limit=4)).next is None
        assert (await self.page(scene, TaskQuery(ALICES), limit=3)).next is not None

    @pytest.mark.parametrize("limit", [-1, 0, 1, PAGE_LIMIT + 1, 10**30])
    async def test_a_page_is_never_empty_nor_endless_whatever_is_asked(self, scene: StoreHarness, limit: int) -> None:
        for _ in range(2):
            await scene.create()
        page = await self.page(scene, TaskQuery(ALICES), limit=limit)
        assert len(page.tasks) == (1 if limit < 2 else 2)

    @pytest.mark.parametrize("limit", [-1, 0, 1])
    async def test_what_is_overdue_or_expired_is_found_at_least_one_by_one(
        self, scene: StoreHarness, limit: int
    ) -> None:
        for _ in range(2):
            await scene.create_running()
            await scene.apply(await scene.create(), Cancel("alice"))
        now = scene.clock.advance(10_000_000)
        assert len(await scene.store.list_overdue(now=now, limit=limit)) == 1
        assert len(await scene.store.list_overdue(now=now, limit=10**30)) == 2
        assert len(await scene.store.prune(now=now, limit=limit)) == 1
        assert len(await scene.store.prune(now=now, limit=10**30)) == 1

    async def test_history_beyond_its_end_is_empty(self, scene: StoreHarness) -> None:
        task = await scene.create()
        for after in (1, 10**30):
            assert await scene.store.history(task.id, EVERYTHING, now=scene.clock.now(), after=after) == ()

    async def test_a_place_in_the_list_outlives_the_task_it_names(self, scene: StoreHarness) -> None:
        old, middle, _new = [await self.create_later(scene) for _ in range(3)]
        ended = await scene.apply(middle, Cancel("alice"))
        assert ended.expires_at is not None
        await scene.store.prune(now=ended.expires_at, limit=1)
        page = await self.page(scene, TaskQuery(ALICES), after=PageCursor.of(middle))
        assert [task.id for task in page.tasks] == [old.id]

    async def test_nothing_is_ever_listed_for_an_anonymous_caller(self, scene: StoreHarness) -> None:
        anonymous = Scope.for_owner(NAMESPACE, Owner.anonymous())
        task = await scene.create(owner=Owner.anonymous())
        assert await self.page(scene, TaskQuery(anonymous)) == Page((), None)
        assert await scene.store.count_live(anonymous) == {}
        assert await scene.load(task, anonymous) == task

    async def test_an_anonymous_session_sees_its_own(self, scene: StoreHarness) -> None:
        one, two = (Owner(OwnerKind.SESSION, (name,)) for name in ("one", "two"))
        task = await scene.create(owner=one)
        assert await self.ids(scene, TaskQuery(Scope.for_owner(NAMESPACE, one))) == [task.id]
        assert await self.ids(scene, TaskQuery(Scope.for_owner(NAMESPACE, two))) == []

    async def test_live_tasks_are_counted_by_phase_and_within_the_scope(self, scene: StoreHarness) -> None:
        running, parked, ended = [await scene.create_running() for _ in range(3)]
        await scene.apply(parked, Park(1, seen_signals=0))
        await scene.apply(ended, Complete(1, encode(1)))
        await scene.create()
        await scene.create(owner=BOB)
        await scene.create(namespace="elsewhere")
        await scene.apply(running, Note(1, status_message="working"))
        counts = {Phase.RUNNING: 1, Phase.PARKED: 1, Phase.QUEUED: 1}
        assert await scene.store.count_live(ALICES) == counts
        assert await scene.store.count_live(Scope.for_namespace(NAMESPACE)) == counts | {Phase.QUEUED: 2}
        assert await scene.store.count_live(EVERYTHING) == counts | {Phase.QUEUED: 3}

    async def create_later(self, scene: StoreHarness, **fields: Any) -> Task:  # noqa: ANN401 - the fields of NewTask
        scene.clock.advance(1)
        return await scene.create(**fields)

    async def page(
        self, scene: StoreHarness, query: TaskQuery, *, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        return await scene.store.list_tasks(query, now=scene.clock.now(), after=after, limit=limit)

    async def ids(self, scene: StoreHarness, query: TaskQuery) -> list[str]:
        return [task.id for task in (await self.page(scene, query)).tasks]


async def expect_hint(feed: ChangeFeed, task_id: TaskId, doing: Awaitable[object]) -> None:
    """Await an operation, then wait until the feed names the task."""
    await doing
    await wait_for_hint(feed, task_id)


class ChangeFeedContract(StoreContractBase):
    async def test_a_listener_hears_of_every_kind_of_change(self, scene: StoreHarness) -> None:
        with scene.store.listen() as feed:
            creation = scene.creation(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
            task = creation.task
            child = scene.creation(parent_id=task.id)
            await expect_hint(feed, task.id, scene.create(id=task.id, retry=task.retry))
            await expect_hint(feed, task.id, scene.claim())
            await expect_hint(feed, child.task.id, scene.apply(task, Note(1, spawned=(child,))))
            now = scene.clock.advance(LEASE.total_seconds())
            await expect_hint(feed, task.id, sweep(scene.store, now=now))
            ended = await scene.load(task)
            assert ended.expires_at is not None
            await expect_hint(feed, task.id, scene.store.prune(now=ended.expires_at, limit=10))

    async def test_what_a_listener_hears_of_can_be_read_at_once(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        with scene.store.listen() as feed:
            await expect_hint(feed, task.id, scene.apply(task, Complete(1, encode(1))))
            assert (await scene.load(task)).is_terminal

    async def test_everybody_who_listens_hears(self, scene: StoreHarness) -> None:
        task = await scene.create()
        with scene.store.listen() as one, scene.store.listen() as two:
            await expect_hint(one, task.id, scene.apply(task, Cancel("alice")))
            await expect_hint(two, task.id, asyncio.sleep(0))

    async def test_neither_a_heartbeat_nor_a_lost_race_is_news(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        stale = await scene.create_running()
        late = decide(stale, Complete(1, encode("late")), scene.clock.now())
        assert late is not None
        await scene.apply(stale, Cancel("alice"))
        with scene.store.listen() as feed:
            held = [HeldAttempt(task.id, task.attempt_number)]
            await scene.store.extend_leases(held, until=scene.clock.now() + LEASE)
            with pytest.raises(StaleChange):
                await scene.store.commit([late])
            # A change that the feed does report follows, so that the wait has an end.
            last = await scene.create()
            news = await wait_for_hint(feed, last.id)
        assert news == {last.id}

    async def test_a_slow_listener_is_told_of_more_than_it_can_name(self, scene: StoreHarness) -> None:
        with scene.store.listen() as feed:
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
