"""Change feeds: hints are ordered, merged and bounded, and a feed ends when its store is closed."""

import asyncio

import anyio
import pytest

from raincheck.core.records import TaskId
from raincheck.stores.change_feed import ANY_TASK, MAX_NAMED_TASKS, ChangeBroadcaster, ChangeFeed, ChangeHint

pytestmark = pytest.mark.anyio


def _hint(*names: str) -> ChangeHint:
    return frozenset(TaskId(name) for name in names)


def _ids(*names: str) -> list[TaskId]:
    return [TaskId(name) for name in names]


async def _next(feed: ChangeFeed) -> ChangeHint:
    with anyio.fail_after(20):
        return await anext(feed)


async def _is_waiting(feed: ChangeFeed) -> bool:
    """Return whether the feed is still waiting: no hint arrives, and it has not ended."""
    with anyio.move_on_after(0) as scope:
        await anext(feed)
    return scope.cancelled_caught


async def _rest(feed: ChangeFeed) -> list[ChangeHint]:
    with anyio.fail_after(20):
        return [hint async for hint in feed]


async def test_hints_arrive_in_the_order_of_the_changes() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        for name in "abc":
            feeds.publish(_ids(name))
            assert await _next(feed) == _hint(name)
        assert await _is_waiting(feed)


async def test_changes_before_the_next_read_are_merged_into_one_hint() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids("a", "b"))
        feeds.publish(_ids("b", "c"))
        assert await _next(feed) == _hint("a", "b", "c")
        assert await _is_waiting(feed)


async def test_a_waiting_reader_is_woken() -> None:
    feeds, found = ChangeBroadcaster(), list[ChangeHint]()
    with feeds.listen() as feed:

        async def read() -> None:
            found.append(await _next(feed))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert not found
            feeds.publish(_ids("a"))
    assert found == [_hint("a")]


async def test_every_listener_gets_every_change() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as one, feeds.listen() as other:
        feeds.publish(_ids("a"))
        assert await _next(one) == _hint("a")
        feeds.publish(_ids("b"))
        assert await _next(one) == _hint("b")
        assert await _next(other) == _hint("a", "b")


async def test_a_listener_gets_only_later_changes() -> None:
    feeds = ChangeBroadcaster()
    feeds.publish(_ids("a"))
    feeds.publish_any_task()
    with feeds.listen() as feed:
        assert await _is_waiting(feed)
        feeds.publish(_ids("b"))
        assert await _next(feed) == _hint("b")


async def test_publishing_no_tasks_sends_no_hint() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish([])
        feeds.publish(task_id for task_id in _ids())
        assert await _is_waiting(feed)


async def test_any_task_is_sent_as_an_empty_hint() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish_any_task()
        feeds.publish_any_task()
        assert await _next(feed) == ANY_TASK == frozenset()
        assert await _is_waiting(feed)


async def test_the_any_task_hint_comes_before_named_ones_and_loses_none() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids("a"))
        feeds.publish_any_task()
        feeds.publish(_ids("b"))
        assert await _next(feed) == ANY_TASK
        assert await _next(feed) == _hint("a", "b")
        assert await _is_waiting(feed)


async def test_tasks_up_to_the_limit_are_named() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids(*(str(number) for number in range(MAX_NAMED_TASKS - 1))))
        feeds.publish(_ids("last"))
        assert len(await _next(feed)) == MAX_NAMED_TASKS


async def test_tasks_beyond_the_limit_are_not_named() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids(*(str(number) for number in range(MAX_NAMED_TASKS))))
        feeds.publish(_ids("one more"))
        assert await _next(feed) == ANY_TASK
        assert await _is_waiting(feed)
        feeds.publish(_ids("a"))
        assert await _next(feed) == _hint("a")


async def test_a_single_hint_beyond_the_limit_becomes_any_task() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids(*(str(number) for number in range(MAX_NAMED_TASKS + 1))))
        assert await _next(feed) == ANY_TASK
        assert await _is_waiting(feed)


async def test_a_reader_that_never_reads_costs_a_bounded_set() -> None:
    feed = ChangeFeed()
    for number in range(MAX_NAMED_TASKS * 3):
        feed.publish(_hint(str(number)))
    feed.close()
    hints = await _rest(feed)
    assert hints[0] == ANY_TASK
    assert sum(len(hint) for hint in hints) <= MAX_NAMED_TASKS


async def test_a_feed_ends_when_the_store_is_closed() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as one, feeds.listen() as other:
        feeds.close()
        assert await _rest(one) == []
        assert await _rest(other) == []


async def test_a_pending_hint_is_delivered_before_the_end() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids("a"))
        feeds.publish_any_task()
        feeds.close()
        assert await _rest(feed) == [ANY_TASK, _hint("a")]
        assert await _rest(feed) == [], "an end stays an end"


async def test_a_waiting_reader_is_released_when_the_feed_ends() -> None:
    feeds, ended = ChangeBroadcaster(), list[list[ChangeHint]]()
    with feeds.listen() as feed:

        async def read() -> None:
            ended.append(await _rest(feed))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            feeds.close()
    assert ended == [[]]


async def test_of_two_readers_of_one_feed_one_gets_the_hint_and_the_other_keeps_waiting() -> None:
    feeds, found = ChangeBroadcaster(), list[ChangeHint]()
    with feeds.listen() as feed:

        async def read() -> None:
            found.append(await _next(feed))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            feeds.publish(_ids("a"))
            await anyio.wait_all_tasks_blocked()
            assert found == [_hint("a")]
            feeds.publish(_ids("b"))
    assert found == [_hint("a"), _hint("b")]


async def test_closing_twice_is_fine() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.close()
        feeds.close()
        assert await _rest(feed) == []


async def test_a_listener_that_left_is_removed() -> None:
    feeds = ChangeBroadcaster()
    assert len(feeds) == 0
    with feeds.listen() as feed, feeds.listen():
        assert len(feeds) == 2
    assert len(feeds) == 0
    feeds.publish(_ids("a"))
    assert await _is_waiting(feed)


async def test_a_listener_that_left_by_an_error_is_removed() -> None:
    feeds = ChangeBroadcaster()
    with pytest.raises(ZeroDivisionError), feeds.listen():
        raise ZeroDivisionError
    assert len(feeds) == 0


async def test_a_reader_that_stops_waiting_misses_nothing_when_it_returns() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        assert await _is_waiting(feed)
        feeds.publish(_ids("a"))
        assert await _next(feed) == _hint("a")


async def test_of_two_waiting_readers_of_one_feed_only_one_gets_a_hint() -> None:
    feed = ChangeFeed()
    waiting = [asyncio.ensure_future(anext(feed)) for _ in range(2)]
    await asyncio.sleep(0)
    feed.publish(frozenset({TaskId("one")}))
    done, still = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [one.result() for one in done] == [frozenset({"one"})]
    feed.publish(frozenset({TaskId("two")}))
    assert [await one for one in still] == [frozenset({"two"})]


async def test_a_callback_gets_each_hint_before_the_writer_continues() -> None:
    feeds, received = ChangeBroadcaster(), list[ChangeHint]()
    with feeds.listen() as feed:
        feeds.publish(_ids("before"))
        listening = asyncio.create_task(feed.for_each(received.append))
        await asyncio.sleep(0)
        assert received == [_hint("before")]
        feeds.publish(_ids("a", "b"))
        assert received[1:] == [_hint("a", "b")]
        feeds.publish_any_task()
        assert received[2:] == [ANY_TASK]
        feeds.close()
        async with asyncio.timeout(20):
            await listening


async def test_an_exception_of_a_callback_is_raised_in_the_listener_and_not_in_the_writer() -> None:
    feeds = ChangeBroadcaster()

    def fail(hint: ChangeHint) -> None:
        raise ValueError(f"not {len(hint)}")

    with feeds.listen() as feed:
        listening = asyncio.create_task(feed.for_each(fail))
        await asyncio.sleep(0)
        feeds.publish(_ids("a"))
        with pytest.raises(ValueError, match="not 1"):
            await listening
        feeds.publish(_ids("b"))
        assert await _next(feed) == _hint("b"), "from then on it is a feed as before"


async def test_a_feed_of_a_closed_store_ends() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.close()
        async with asyncio.timeout(20):
            await feed.for_each(lambda _: pytest.fail("there was nothing"))
