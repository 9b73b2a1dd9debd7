"""Feeds: those who wait hear of every change, and cost nothing when they don't listen."""

import asyncio
from collections.abc import Awaitable

import pytest

from raincheck.core.commands import Cancel, Complete, Note
from raincheck.core.decide import decide
from raincheck.core.payload import encode
from raincheck.core.records import TaskId
from raincheck.core.retry import OnInterrupt, RetryPolicy
from raincheck.errors import StaleChange
from raincheck.stores.apply import sweep
from raincheck.stores.feed import ANYTHING, Feed
from raincheck.stores.interface import Store
from raincheck.stores.requests import HeldAttempt
from raincheck.testing.contract.base import ContractBase
from raincheck.testing.scene import LEASE, Scene, hear_until


async def hears_of(feed: Feed, task_id: TaskId, doing: Awaitable[object]) -> None:
    """Do something, and wait until the feed has named the task."""
    await doing
    await hear_until(feed, task_id)


class HearingContract(ContractBase):
    async def test_a_listener_hears_of_every_kind_of_change(self, scene: Scene) -> None:
        with scene.store.listen() as feed:
            creation = scene.creation(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
            task = creation.task
            child = scene.creation(parent_id=task.id)
            await hears_of(feed, task.id, scene.create(id=task.id, retry=task.retry))
            await hears_of(feed, task.id, scene.claim())
            await hears_of(feed, child.task.id, scene.do(task, Note(1, spawned=(child,))))
            now = scene.clock.advance(LEASE.total_seconds())
            await hears_of(feed, task.id, sweep(scene.store, now=now))
            ended = await scene.load(task)
            assert ended.expires_at is not None
            await hears_of(feed, task.id, scene.store.prune(now=ended.expires_at, limit=10))

    async def test_what_a_listener_hears_of_can_be_read_at_once(self, scene: Scene) -> None:
        task = await scene.begin()
        with scene.store.listen() as feed:
            await hears_of(feed, task.id, scene.do(task, Complete(1, encode(1))))
            assert (await scene.load(task)).is_terminal

    async def test_everybody_who_listens_hears(self, scene: Scene) -> None:
        task = await scene.create()
        with scene.store.listen() as one, scene.store.listen() as two:
            await hears_of(one, task.id, scene.do(task, Cancel("alice")))
            await hears_of(two, task.id, asyncio.sleep(0))

    async def test_neither_a_heartbeat_nor_a_lost_race_is_news(self, scene: Scene) -> None:
        task = await scene.begin()
        stale = await scene.begin()
        late = decide(stale, Complete(1, encode("late")), scene.clock.now())
        assert late is not None
        await scene.do(stale, Cancel("alice"))
        with scene.store.listen() as feed:
            held = [HeldAttempt(task.id, task.fence)]
            await scene.store.extend_leases(held, until=scene.clock.now() + LEASE)
            with pytest.raises(StaleChange):
                await scene.store.commit([late])
            # Something that is news comes after them, so that there is an end to wait for.
            last = await scene.create()
            news = await hear_until(feed, last.id)
        assert news == {last.id}

    async def test_a_slow_listener_is_told_of_more_than_it_can_name(self, scene: Scene) -> None:
        with scene.store.listen() as feed:
            for number in range(10_001):
                feed.publish(frozenset({TaskId(f"task {number}")}))
            async with asyncio.timeout(10):
                assert await anext(feed) == ANYTHING

    async def test_closing_the_store_ends_the_feeds(self, store: Store) -> None:
        with store.listen() as feed:
            waiting = asyncio.ensure_future(self.drain(feed))
            await store.close()
            async with asyncio.timeout(10):
                await waiting
        await store.open()

    async def drain(self, feed: Feed) -> None:
        async for _ in feed:
            pass
