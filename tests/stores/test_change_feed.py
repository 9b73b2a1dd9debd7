"""Feeds: hints in order, merged, bounded, and over when the store is closed."""

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
    """Nothing comes, and the feed has not ended."""
    with anyio.move_on_after(0) as scope:
        await anext(feed)
    return scope.cancelled_caught


async def _rest(feed: ChangeFeed) -> list[ChangeHint]:
    with anyio.fail_after(20):
        return [hint async for hint in feed]


async def test_hints_come_in_the_order_of_what_happened() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        for name in "abc":
            feeds.publish(_ids(name))
            assert await _next(feed) == _hint(name)
        assert await _is_waiting(feed)


async def test_what_happens_before_the_reader_looks_is_one_hint() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids("a", "b"))
        feeds.publish(_ids("b", "c"))
        assert await _next(feed) == _hint("a", "b", "c")
        assert await _is_waiting(feed)


async def test_a_reader_who_waits_is_woken() -> None:
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


async def test_every_listener_hears_of_everything() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as one, feeds.listen() as other:
        feeds.publish(_ids("a"))
        assert await _next(one) == _hint("a")
        feeds.publish(_ids("b"))
        assert await _next(one) == _hint("b")
        assert await _next(other) == _hint("a", "b")


async def test_a_listener_hears_only_of_what_comes_after_it() -> None:
    feeds = ChangeBroadcaster()
    feeds.publish(_ids("a"))
    feeds.publish_any_task()
    with feeds.listen() as feed:
        assert await _is_waiting(feed)
        feeds.publish(_ids("b"))
        assert await _next(feed) == _hint("b")


async def test_publishing_nothing_tells_nobody() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish([])
        feeds.publish(task_id for task_id in _ids())
        assert await _is_waiting(feed)


async def test_anything_is_told_as_an_empty_hint() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish_any_task()
        feeds.publish_any_task()
        assert await _next(feed) == ANY_TASK == frozenset()
        assert await _is_waiting(feed)


async def test_anything_goes_before_what_can_be_named_and_loses_none_of_it() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids("a"))
        feeds.publish_any_task()
        feeds.publish(_ids("b"))
        assert await _next(feed) == ANY_TASK
        assert await _next(feed) == _hint("a", "b")
        assert await _is_waiting(feed)


async def test_as_many_as_the_limit_are_named() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids(*(str(number) for number in range(MAX_NAMED_TASKS - 1))))
        feeds.publish(_ids("last"))
        assert len(await _next(feed)) == MAX_NAMED_TASKS


async def test_more_than_the_limit_are_no_longer_named() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids(*(str(number) for number in range(MAX_NAMED_TASKS))))
        feeds.publish(_ids("one more"))
        assert await _next(feed) == ANY_TASK
        assert await _is_waiting(feed)
        feeds.publish(_ids("a"))
        assert await _next(feed) == _hint("a")


async def test_a_single_hint_beyond_the_limit_is_no_longer_named() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids(*(str(number) for number in range(MAX_NAMED_TASKS + 1))))
        assert await _next(feed) == ANY_TASK
        assert await _is_waiting(feed)


async def test_a_reader_who_never_looks_costs_a_bounded_set() -> None:
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


async def test_what_is_pending_is_delivered_before_the_end() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.publish(_ids("a"))
        feeds.publish_any_task()
        feeds.close()
        assert await _rest(feed) == [ANY_TASK, _hint("a")]
        assert await _rest(feed) == [], "an end stays an end"


async def test_a_reader_who_waits_is_let_go_at_the_end() -> None:
    feeds, ended = ChangeBroadcaster(), list[list[ChangeHint]]()
    with feeds.listen() as feed:

        async def read() -> None:
            ended.append(await _rest(feed))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            feeds.close()
    assert ended == [[]]


async def test_of_two_who_wait_on_one_feed_one_is_told_and_the_other_waits_on() -> None:
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


async def test_a_listener_who_left_is_forgotten() -> None:
    feeds = ChangeBroadcaster()
    assert len(feeds) == 0
    with feeds.listen() as feed, feeds.listen():
        assert len(feeds) == 2
    assert len(feeds) == 0
    feeds.publish(_ids("a"))
    assert await _is_waiting(feed)


async def test_a_listener_who_left_by_an_error_is_forgotten() -> None:
    feeds = ChangeBroadcaster()
    with pytest.raises(ZeroDivisionError), feeds.listen():
        raise ZeroDivisionError
    assert len(feeds) == 0


async def test_a_reader_who_gives_up_misses_nothing_when_it_comes_back() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        assert await _is_waiting(feed)
        feeds.publish(_ids("a"))
        assert await _next(feed) == _hint("a")


async def test_of_two_who_wait_on_one_feed_one_hears_and_the_other_goes_on_waiting() -> None:
    feed = ChangeFeed()
    waiting = [asyncio.ensure_future(anext(feed)) for _ in range(2)]
    await asyncio.sleep(0)
    feed.publish(frozenset({TaskId("one")}))
    done, still = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [one.result() for one in done] == [frozenset({"one"})]
    feed.publish(frozenset({TaskId("two")}))
    assert [await one for one in still] == [frozenset({"two"})]


async def test_whoever_has_each_hint_told_is_told_before_the_writer_goes_on() -> None:
    feeds, told = ChangeBroadcaster(), list[ChangeHint]()
    with feeds.listen() as feed:
        feeds.publish(_ids("before"))
        hearing = asyncio.create_task(feed.for_each(told.append))
        await asyncio.sleep(0)
        assert told == [_hint("before")]
        feeds.publish(_ids("a", "b"))
        assert told[1:] == [_hint("a", "b")]
        feeds.publish_any_task()
        assert told[2:] == [ANY_TASK]
        feeds.close()
        async with asyncio.timeout(20):
            await hearing


async def test_a_listener_that_fails_is_told_so_and_the_writer_is_not() -> None:
    feeds = ChangeBroadcaster()

    def fail(hint: ChangeHint) -> None:
        raise ValueError(f"not {len(hint)}")

    with feeds.listen() as feed:
        hearing = asyncio.create_task(feed.for_each(fail))
        await asyncio.sleep(0)
        feeds.publish(_ids("a"))
        with pytest.raises(ValueError, match="not 1"):
            await hearing
        feeds.publish(_ids("b"))
        assert await _next(feed) == _hint("b"), "from then on it is a feed as before"


async def test_a_feed_of_a_closed_store_has_nothing_more_to_tell() -> None:
    feeds = ChangeBroadcaster()
    with feeds.listen() as feed:
        feeds.close()
        async with asyncio.timeout(20):
            await feed.for_each(lambda _: pytest.fail("there was nothing"))
