"""Servers that die in the middle, for real: whoever waits goes on waiting, and gets the result."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from raincheck.client import InputRequired, ServerUnreachable, answer_later
from tests.support.client.callers import User, begin, text_of
from tests.support.client.server_processes import Site
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

EVERYWHERE = pytest.mark.parametrize(
    ("tier", "way"),
    [("2026", "http"), ("2025", "http"), ("plain", "http"), ("2026", "stdio"), ("2025", "stdio"), ("plain", "stdio")],
)
IN_BOTH = pytest.mark.parametrize(
    ("tier", "way"), [("2026", "http"), ("2025", "http"), ("2026", "stdio"), ("2025", "stdio")]
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    try:
        yield site
    finally:
        await site.kill()


async def kill_and_start(site: Site, way: str) -> None:
    """On its standard streams, a server is started by its client."""
    if way == "http":
        await site.kill()
        await site.start()
    else:
        await asyncio.to_thread(site.kill_program)


@EVERYWHERE
async def test_a_result_comes_although_the_server_was_killed_twice(site: Site, tier: str, way: str) -> None:
    if way == "http":
        await site.start()
    async with site.client(tier, way) as client:
        handle = await begin(client, "work", {"steps": 5, "ms": 300})
        waiting = asyncio.create_task(handle.result())
        for number in (1, 3):
            await site.wait_for_line(f"{handle.task_id} step-{number}")
            await kill_and_start(site, way)
        result = await waiting
    assert result.structured_content == {"result": [f"step-{number}" for number in range(5)]}
    done = Counter(line for line in site.lines() if line.startswith(str(handle.task_id)))
    # A step that was cut off is done again, and no other.
    assert len(done) == 5
    assert sum(done.values()) <= 7


@IN_BOTH
async def test_a_question_is_asked_once_although_the_server_was_killed_meanwhile(
    site: Site, tier: str, way: str
) -> None:
    user = User("Sure?")
    if way == "http":
        await site.start()
    async with site.client(tier, way, elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task(client.call_tool("confirm"))
        await user.is_asked.wait()
        await kill_and_start(site, way)
        if way == "stdio":
            await site.wait_for(lambda lines: sum(line.startswith("pid") for line in lines) == 2)
        user.decides.set()
        assert text_of(await waiting) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]
    assert user.left_when == []


async def test_an_answer_is_kept_until_the_server_is_back(site: Site) -> None:
    user = User("Sure?")
    await site.start()
    async with site.client("2026", "http", elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task(client.call_tool("confirm"))
        await user.is_asked.wait()
        await site.kill()
        user.decides.set()
        await asyncio.sleep(0)
        await site.start()
        assert text_of(await waiting) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]
    assert site.lines().count(next(line for line in site.lines() if line.endswith("answered"))) == 1


async def test_what_is_answered_by_hand_arrives_although_the_server_was_killed(site: Site) -> None:
    await site.start()
    async with site.client("2026", "http", elicitation_callback=answer_later) as client:
        handle = await begin(client, "confirm")
        with pytest.raises(InputRequired) as needed:
            await handle.result()
        await kill_and_start(site, "http")
        await handle.answer({needed.value.questions[0].key: {"action": "decline"}})
        with pytest.raises(InputRequired) as needed:
            await handle.result()
        assert needed.value.questions[0].message == "Really?"


async def test_a_server_that_stays_away_is_told_when_patience_is_over_and_the_handle_stays_good(site: Site) -> None:
    clock = SkippingClock()
    await site.start()
    async with site.client("2026", "http", clock=clock, reconnect_timeout=30) as client:
        handle = await begin(client, "work", {"steps": 2, "ms": 10})
        await site.kill()
        with pytest.raises(ServerUnreachable, match=str(site.port)) as raised:
            await handle.result()
        assert raised.value.server == site.url
        assert 30 <= clock.monotonic() <= 40
        assert max(clock.slept) <= 5
        await site.start()
        assert (await handle.result()).structured_content == {"result": ["step-0", "step-1"]}


async def test_a_server_that_is_not_there_is_told_at_once(site: Site) -> None:
    with pytest.raises(ServerUnreachable, match="can't be reached"):
        async with site.client("2026", "http"):
            raise AssertionError("never entered")
