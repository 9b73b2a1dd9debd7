"""Servers that break, hang or talk nonsense: each gives a clear error, or whoever waits goes on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck.client import CallLost, ServerUnreachable, TaskClient
from raincheck.client.polling import DEFAULT_POLL_INTERVAL, MAX_POLL_INTERVAL, MIN_POLL_INTERVAL
from raincheck.errors import ConfigurationError
from tests.support.client.callers import User, text_of, updates_of
from tests.support.client.fake_servers import DONE, WORKING, Answer, Dead, Fake, Hung
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])

ASKS: dict[str, Any] = {
    "status": "input_required",
    "inputRequests": {
        "q": {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {"type": "object"}}}
    },
}


async def let_time_pass(clock: SkippingClock, job: "asyncio.Task[Any]") -> None:
    """Let each bound pass that is set, until the job is done."""
    while not job.done():
        bound = asyncio.create_task(clock.bounds.get())
        await asyncio.wait([bound, job], return_when=asyncio.FIRST_COMPLETED)
        if bound.done():
            # What is answered is answered now.
            for _ in range(100):
                await asyncio.sleep(0)
            clock.advance(bound.result())
        bound.cancel()


@BOTH
async def test_a_call_that_gets_no_answer_is_told_to_be_lost(version: str) -> None:
    fake = Fake(version)
    fake.says("tools/call", Dead())
    async with fake.client() as client:
        with pytest.raises(CallLost, match="'work' was called") as raised:
            await client.call("work")
        assert (raised.value.server, raised.value.tool) == ("fake", "work")
    assert fake.times("tools/call") == 1


@BOTH
async def test_a_call_with_a_key_that_gets_no_answer_is_made_again(version: str) -> None:
    fake = Fake(version, tool={"_meta": {"raincheck/takes-keys": True}})
    fake.says("tools/call", Dead(), {"task": WORKING, "resultType": "task", **WORKING})
    fake.ends()
    async with fake.client(clock=SkippingClock()) as client:
        assert text_of(await client.call_tool("work", key="mine")) == "done"
    keys = [params["_meta"]["raincheck/idempotency-key"] for method, params in fake.asked if method == "tools/call"]
    assert keys == ["mine", "mine"]
    assert fake.connections == 2


@BOTH
async def test_a_server_that_dies_while_it_is_asked_is_asked_again(version: str) -> None:
    fake = Fake(version)
    fake.shows(WORKING)
    async with fake.client(clock=SkippingClock()) as client:
        handle = await client.call("work")
        fake.says("tasks/get", Dead())
        waiting = asyncio.create_task(handle.result())
        await fake.until(lambda: fake.connections == 3)
        fake.ends()
        assert text_of(await waiting) == "done"


@BOTH
async def test_a_server_that_never_answers_is_told_when_patience_is_over(version: str) -> None:
    fake, clock = Fake(version), SkippingClock()
    fake.says("tasks/get", Hung())
    async with fake.client(clock=clock, reconnect_timeout=45) as client:
        handle = await client.call("work")
        clock.forget_bounds()
        waiting = asyncio.create_task(handle.result())
        await let_time_pass(clock, waiting)
        with pytest.raises(ServerUnreachable, match="no answer within 30 s"):
            await waiting
    assert fake.times("tasks/get") == 2
    assert fake.connections == 1


@BOTH
async def test_a_server_that_never_greets_is_told_when_patience_is_over(version: str) -> None:
    fake, clock = Fake(version), SkippingClock()
    fake.says("initialize", Hung())
    client = fake.client(clock=clock, mode="legacy")
    entering = asyncio.create_task(client.__aenter__())
    await let_time_pass(clock, entering)
    with pytest.raises(ServerUnreachable, match="does not answer within 60 s"):
        await entering


async def test_a_server_that_never_lets_go_is_left() -> None:
    fake, clock = Fake(), SkippingClock()

    @asynccontextmanager
    async def clinging() -> AsyncGenerator[Any]:
        async with fake.connect() as streams:
            yield streams
            await asyncio.Event().wait()

    async with TaskClient(clinging, clock=clock) as client:
        clock.forget_bounds()
        leaving = asyncio.create_task(client.__aexit__(None, None, None))
        await let_time_pass(clock, leaving)
        await leaving


@pytest.mark.parametrize("call", [{}, {"key": "mine"}])
async def test_a_call_waits_no_longer_than_the_caller_says(call: dict[str, Any]) -> None:
    for version in ("2026-07-28", "2025-11-25"):
        fake = Fake(version)
        fake.says("tools/call", Hung())
        async with fake.client(read_timeout_seconds=0.05, reconnect_timeout=1, clock=SkippingClock()) as client:
            with pytest.raises((CallLost, ServerUnreachable), match="timed out"):
                await client.call("work", **call)


async def test_a_server_without_tasks_is_called_as_ever() -> None:
    fake = Fake("2025-06-18")
    fake.says("tools/call", DONE)
    async with fake.client() as client:
        handle = await client.call("work")
        assert handle.task_id is None
        assert text_of(await handle.result()) == "done"
    ((_, params),) = [asked for asked in fake.asked if asked[0] == "tools/call"]
    assert "task" not in params


@pytest.mark.parametrize(
    "hello",
    [
        MCPError(-32000, "go away"),
        {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "fake", "version": "1"}},
        {"nothing": "known"},
        Dead(),
    ],
)
async def test_a_server_that_speaks_another_language_can_not_be_reached(hello: Answer) -> None:
    fake = Fake("2025-11-25")
    fake.says("initialize", hello)
    with pytest.raises(ServerUnreachable, match="fake can't be reached"):
        async with fake.client():
            raise AssertionError("never entered")


@pytest.mark.parametrize(
    ("said", "waited"),
    [
        (0, MIN_POLL_INTERVAL),
        (-5_000, MIN_POLL_INTERVAL),
        (1, MIN_POLL_INTERVAL),
        (2_500, 2.5),
        (2_500.5, 2.5005),
        (31_536_000_000, MAX_POLL_INTERVAL),
        (1e308, DEFAULT_POLL_INTERVAL),
        (10**400, DEFAULT_POLL_INTERVAL),
        (float("nan"), DEFAULT_POLL_INTERVAL),
        (float("inf"), DEFAULT_POLL_INTERVAL),
        (True, DEFAULT_POLL_INTERVAL),
        ("soon", DEFAULT_POLL_INTERVAL),
        (None, DEFAULT_POLL_INTERVAL),
        ({}, DEFAULT_POLL_INTERVAL),
    ],
)
@BOTH
async def test_polls_keep_to_the_servers_pace_within_reason(version: str, said: Any, waited: float) -> None:
    fake, clock = Fake(version), SkippingClock()
    fake.ends(*[{**WORKING, "pollInterval": said, "pollIntervalMs": said}] * 3)
    async with fake.client(clock=clock) as client:
        assert text_of(await client.call_tool("work")) == "done"
    assert clock.slept == [waited] * 3


@BOTH
async def test_a_task_that_goes_back_to_work_has_ended_all_the_same(version: str) -> None:
    fake = Fake(version)
    fake.ends()
    async with fake.client(clock=SkippingClock()) as client:
        handle = await client.call("work")
        (end,) = await updates_of(handle)
        fake.shows(WORKING)
        assert text_of(await handle.result()) == "done"
        assert await updates_of(handle) == [end]
        assert await handle.poll() == end
        await handle.cancel()
    assert fake.times("tasks/cancel") == 0


async def test_a_question_that_never_goes_away_is_asked_once_and_its_answer_sent_again() -> None:
    fake, user = Fake(), User()
    fake.shows(ASKS)
    fake.says("tasks/update", {"resultType": "complete"})
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        handle = await client.call("work")
        with pytest.raises(TimeoutError):
            await handle.result(timeout=60)
    assert user.asked == ["Sure?"]
    assert fake.times("tasks/update") > 1


async def test_a_server_that_has_nothing_to_ask_after_all_is_asked_at_its_pace() -> None:
    fake = Fake("2025-11-25")
    fake.shows({"status": "input_required"})
    fake.says("tasks/result", MCPError(-32603, "not now"))
    async with fake.client(clock=SkippingClock(), elicitation_callback=User().answer) as client:
        handle = await client.call("work")
        with pytest.raises(TimeoutError):
            await handle.result(timeout=60)
    assert fake.times("tasks/result") <= 61


@BOTH
async def test_only_what_is_told_of_ones_own_task_is_heard(version: str) -> None:
    method = "notifications/tasks" if version == "2026-07-28" else "notifications/tasks/status"
    fake = Fake(version)
    fake.shows(WORKING)
    async with fake.client(clock=SkippingClock(longest=0.5)) as client:
        handle = await client.call("work")
        waiting = asyncio.create_task(handle.result())
        await fake.until(lambda: fake.times("tasks/get") > 0)
        for stranger in ({"taskId": "u", "status": "completed"}, {"taskId": 7}, {}):
            await fake.push(method, stranger)
        for progress in (
            {"progressToken": "theirs", "progress": 1},
            {"progressToken": 7, "progress": 1, "_meta": {"io.modelcontextprotocol/related-task": "odd"}},
            {"progressToken": 7, "progress": 1, "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "u"}}},
        ):
            await fake.push("notifications/progress", progress)
        for _ in range(100):
            await asyncio.sleep(0)
        assert fake.times("tasks/get") == 1
        fake.ends()
        await fake.push(method, {**WORKING, "status": "completed"})
        assert text_of(await waiting) == "done"
    assert fake.times("tasks/get") == 2


@BOTH
async def test_a_server_that_tells_too_often_is_not_asked_as_often(version: str) -> None:
    method = "notifications/tasks" if version == "2026-07-28" else "notifications/tasks/status"
    fake, clock = Fake(version), SkippingClock(longest=0.5)
    fake.shows(WORKING)
    async with fake.client(clock=clock) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        for _ in range(500):
            await fake.push(method, WORKING)
            await asyncio.sleep(0)
        fake.ends()
        await fake.push(method, WORKING)
        assert text_of(await waiting) == "done"
    assert fake.times("tasks/get") <= clock.monotonic() / 0.05 + 2


async def test_a_subscription_that_ends_at_once_is_not_a_loop() -> None:
    ends = {"resultType": "complete"}
    for answer in (ends, MCPError(-32601, "Method not found"), MCPError(-32000, "SSE stream ended")):
        fake = Fake()
        fake.says("subscriptions/listen", answer)
        fake.ends(*[WORKING] * 5)
        async with fake.client(clock=SkippingClock()) as client:
            assert text_of(await client.call_tool("work")) == "done"
        assert fake.times("subscriptions/listen") <= 5
        assert fake.connections == 1


async def test_a_list_of_tools_without_end_does_not_hang_a_call() -> None:
    fake = Fake("2025-11-25")
    fake.says("tools/list", {"tools": [], "nextCursor": "again"})
    fake.says("tools/call", DONE)
    async with fake.client() as client:
        assert text_of(await client.call_tool("work")) == "done"
    assert fake.times("tools/list") <= 102


async def test_a_server_that_changed_its_mind_about_a_tool_is_asked_again() -> None:
    fake = Fake("2025-11-25")
    fake.ends()
    async with fake.client() as client:
        await client.call("work")
        fake.says("tools/list", {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})
        fake.says("tools/call", MCPError(-32601, "this tool does not allow tasks"), DONE)
        assert text_of(await client.call_tool("work")) == "done"
        fake.says("tools/call", MCPError(-32601, "this tool does not allow tasks"))
        with pytest.raises(MCPError, match="does not allow"):
            await client.call("work")


async def test_a_transport_that_can_be_used_once_is_told_to_be() -> None:
    fake = Fake()
    fake.says("tasks/get", Dead())
    async with TaskClient(fake.connect(), clock=SkippingClock()) as client:
        handle = await client.call("work")
        with pytest.raises(ConfigurationError, match="give a function that makes it"):
            await handle.result()


async def test_a_client_is_used_while_it_is_open() -> None:
    fake = Fake()
    fake.shows(WORKING)
    client = fake.client(clock=SkippingClock(longest=0.5))
    with pytest.raises(ConfigurationError, match="async with"):
        await client.call("work")
    async with client:
        handle = await client.call("work")
        waiting = asyncio.create_task(handle.result())
        await fake.until(lambda: fake.times("tasks/get") > 0)
        following = asyncio.create_task(updates_of(handle))
    with pytest.raises(ConfigurationError, match="async with"):
        await handle.poll()
    for job in (waiting, following):
        job.cancel()
    await asyncio.wait([waiting, following])
    fake.ends()
    async with client:
        assert text_of(await handle.result()) == "done"


async def test_options_that_can_not_work_are_told_as_they_are() -> None:
    with pytest.raises(ValueError, match="mode"):
        async with Fake().client(mode="2099-01-01"):
            raise AssertionError("never entered")
