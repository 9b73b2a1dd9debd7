"""Tests for servers that are killed: waiting continues after a restart, and the result arrives."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from raincheck.client import InputRequired, ServerUnreachable, answer_later
from tests.support.client.callers import User, start_task, text_of
from tests.support.client.server_processes import ServerProcess
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
async def server_process(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    server_process = ServerProcess(tmp_path)
    try:
        yield server_process
    finally:
        await server_process.kill()


async def kill_and_start(server_process: ServerProcess, way: str) -> None:
    """On its standard streams, a server is started by its client."""
    if way == "http":
        await server_process.kill()
        await server_process.start()
    else:
        await asyncio.to_thread(server_process.kill_program)


@EVERYWHERE
async def test_the_result_arrives_after_the_server_was_killed_twice(
    server_process: ServerProcess, tier: str, way: str
) -> None:
    if way == "http":
        await server_process.start()
    async with server_process.client(tier, way) as client:
        handle = await start_task(client, "work", {"steps": 5, "ms": 300})
        waiting = asyncio.create_task(handle.result())
        for number in (1, 3):
            await server_process.wait_for_line(f"{handle.task_id} step-{number}")
            await kill_and_start(server_process, way)
        result = await waiting
    assert result.structured_content == {"result": [f"step-{number}" for number in range(5)]}
    done = Counter(line for line in server_process.lines() if line.startswith(str(handle.task_id)))
    # A step that was cut off is done again, and no other.
    assert len(done) == 5
    assert sum(done.values()) <= 7


@IN_BOTH
async def test_a_question_is_asked_once_even_if_the_server_is_killed_meanwhile(
    server_process: ServerProcess, tier: str, way: str
) -> None:
    user = User("Sure?")
    if way == "http":
        await server_process.start()
    async with server_process.client(tier, way, elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task(client.call_tool("confirm"))
        await user.is_asked.wait()
        await kill_and_start(server_process, way)
        if way == "stdio":
            await server_process.wait_for(lambda lines: sum(line.startswith("pid") for line in lines) == 2)
        user.decides.set()
        assert text_of(await waiting) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]
    assert user.left_when == []


async def test_an_answer_is_stored_until_the_server_is_back(server_process: ServerProcess) -> None:
    user = User("Sure?")
    await server_process.start()
    async with server_process.client("2026", "http", elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task(client.call_tool("confirm"))
        await user.is_asked.wait()
        await server_process.kill()
        user.decides.set()
        await asyncio.sleep(0)
        await server_process.start()
        assert text_of(await waiting) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]
    assert server_process.lines().count(next(line for line in server_process.lines() if line.endswith("answered"))) == 1


async def test_an_answer_from_the_handle_arrives_after_the_server_was_killed(server_process: ServerProcess) -> None:
    await server_process.start()
    async with server_process.client("2026", "http", elicitation_callback=answer_later) as client:
        handle = await start_task(client, "confirm")
        with pytest.raises(InputRequired) as needed:
            await handle.result()
        await kill_and_start(server_process, "http")
        await handle.answer({needed.value.questions[0].key: {"action": "decline"}})
        with pytest.raises(InputRequired) as needed:
            await handle.result()
        assert needed.value.questions[0].message == "Really?"


async def test_an_unavailable_server_raises_after_the_reconnect_timeout_and_the_handle_stays_usable(
    server_process: ServerProcess,
) -> None:
    clock = SkippingClock()
    await server_process.start()
    async with server_process.client("2026", "http", clock=clock, reconnect_timeout=30) as client:
        handle = await start_task(client, "work", {"steps": 2, "ms": 10})
        await server_process.kill()
        with pytest.raises(ServerUnreachable, match=str(server_process.port)) as raised:
            await handle.result()
        assert raised.value.server == server_process.url
        assert 30 <= clock.monotonic() <= 40
        assert max(clock.slept) <= 5
        await server_process.start()
        assert (await handle.result()).structured_content == {"result": ["step-0", "step-1"]}


async def test_a_missing_server_is_reported_at_once(server_process: ServerProcess) -> None:
    with pytest.raises(ServerUnreachable, match="can't be reached"):
        async with server_process.client("2026", "http"):
            raise AssertionError("never entered")
