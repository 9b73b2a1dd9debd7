"""Tests for servers that break, hang or send nonsense: waiting continues, or a clear error is raised."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck.client import CallLost, ServerUnreachable, TaskClient
from raincheck.client.session import DEFAULT_POLL_INTERVAL, MAX_POLL_INTERVAL, MIN_POLL_INTERVAL
from raincheck.errors import ConfigurationError
from tests.support.client.callers import User, text_of, updates_of
from tests.support.client.fake_servers import DONE, WORKING, Answer, FakeServer, NeverResponds, ServerDied
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])

ASKS: dict[str, Any] = {
    "status": "input_required",
    "inputRequests": {
        "q": {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {"type": "object"}}}
    },
}


async def let_time_pass(clock: SkippingClock, running: "asyncio.Task[Any]") -> None:
    """Let each bound pass that is set, until the job is done."""
    while not running.done():
        bound = asyncio.create_task(clock.bounds.get())
        await asyncio.wait([bound, running], return_when=asyncio.FIRST_COMPLETED)
        if bound.done():
            # What is answered is answered now.
            for _ in range(100):
                await asyncio.sleep(0)
            clock.advance(bound.result())
        bound.cancel()


@BOTH
async def test_a_call_without_a_response_raises_call_lost(version: str) -> None:
    fake = FakeServer(version)
    fake.set_responses("tools/call", ServerDied())
    async with fake.client() as client:
        with pytest.raises(CallLost, match="during a call of 'work'") as raised:
            await client.call("work")
        assert (raised.value.server, raised.value.tool) == ("fake", "work")
    assert fake.count_requests("tools/call") == 1


@BOTH
async def test_a_call_with_a_key_and_without_a_response_is_sent_again(version: str) -> None:
    fake = FakeServer(version, tool={"_meta": {"raincheck/takes-keys": True}})
    fake.set_responses("tools/call", ServerDied(), {"task": WORKING, "resultType": "task", **WORKING})
    fake.complete_after()
    async with fake.client(clock=SkippingClock()) as client:
        assert text_of(await client.call_tool("work", key="mine")) == "done"
    keys = [params["_meta"]["raincheck/idempotency-key"] for method, params in fake.asked if method == "tools/call"]
    assert keys == ["mine", "mine"]
    assert fake.connections == 2


@BOTH
async def test_a_request_is_retried_if_the_server_dies_during_it(version: str) -> None:
    fake = FakeServer(version)
    fake.set_tasks(WORKING)
    async with fake.client(clock=SkippingClock()) as client:
        handle = await client.call("work")
        fake.set_responses("tasks/get", ServerDied())
        waiting = asyncio.create_task(handle.result())
        await fake.wait_until(lambda: fake.connections == 3)
        fake.complete_after()
        assert text_of(await waiting) == "done"


@BOTH
async def test_a_server_that_never_responds_raises_after_the_timeout(version: str) -> None:
    fake, clock = FakeServer(version), SkippingClock()
    fake.set_responses("tasks/get", NeverResponds())
    async with fake.client(clock=clock, reconnect_timeout=45) as client:
        handle = await client.call("work")
        clock.forget_bounds()
        waiting = asyncio.create_task(handle.result())
        await let_time_pass(clock, waiting)
        with pytest.raises(ServerUnreachable, match="no response within 30 s"):
            await waiting
    assert fake.count_requests("tasks/get") == 2
    assert fake.connections == 1


@BOTH
async def test_a_server_that_never_completes_the_handshake_raises_after_the_timeout(version: str) -> None:
    fake, clock = FakeServer(version), SkippingClock()
    fake.set_responses("initialize", NeverResponds())
    client = fake.client(clock=clock, mode="legacy")
    entering = asyncio.create_task(client.__aenter__())
    await let_time_pass(clock, entering)
    with pytest.raises(ServerUnreachable, match="no response within 60 s"):
        await entering


async def test_a_connection_that_does_not_close_is_abandoned() -> None:
    fake, clock = FakeServer(), SkippingClock()

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
async def test_a_call_respects_the_read_timeout_of_the_caller(call: dict[str, Any]) -> None:
    for version in ("2026-07-28", "2025-11-25"):
        fake = FakeServer(version)
        fake.set_responses("tools/call", NeverResponds())
        async with fake.client(read_timeout_seconds=0.05, reconnect_timeout=1, clock=SkippingClock()) as client:
            with pytest.raises((CallLost, ServerUnreachable), match="timed out"):
                await client.call("work", **call)


async def test_a_server_without_tasks_is_called_normally() -> None:
    fake = FakeServer("2025-06-18")
    fake.set_responses("tools/call", DONE)
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
        ServerDied(),
    ],
)
async def test_a_server_with_an_unsupported_version_is_unreachable(hello: Answer) -> None:
    fake = FakeServer("2025-11-25")
    fake.set_responses("initialize", hello)
    with pytest.raises(ServerUnreachable, match="fake can't be reached"):
        async with fake.client():
            raise AssertionError("never entered")


@pytest.mark.parametrize(
    ("text", "waited"),
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
async def test_polls_follow_the_servers_interval_within_limits(version: str, text: Any, waited: float) -> None:
    fake, clock = FakeServer(version), SkippingClock()
    fake.complete_after(*[{**WORKING, "pollInterval": text, "pollIntervalMs": text}] * 3)
    async with fake.client(clock=clock) as client:
        assert text_of(await client.call_tool("work")) == "done"
    assert clock.slept == [waited] * 3


@BOTH
async def test_an_ended_task_stays_ended_whatever_the_server_reports_later(version: str) -> None:
    fake = FakeServer(version)
    fake.complete_after()
    async with fake.client(clock=SkippingClock()) as client:
        handle = await client.call("work")
        (end,) = await updates_of(handle)
        fake.set_tasks(WORKING)
        assert text_of(await handle.result()) == "done"
        assert await updates_of(handle) == [end]
        assert await handle.poll() == end
        await handle.cancel()
    assert fake.count_requests("tasks/cancel") == 0


async def test_a_question_that_stays_open_is_asked_once_and_its_answer_is_resent() -> None:
    fake, user = FakeServer(), User()
    fake.set_tasks(ASKS)
    fake.set_responses("tasks/update", {"resultType": "complete"})
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        handle = await client.call("work")
        with pytest.raises(TimeoutError):
            await handle.result(timeout=60)
    assert user.asked == ["Sure?"]
    assert fake.count_requests("tasks/update") > 1


async def test_a_task_that_announces_input_but_asks_nothing_is_polled_at_its_interval() -> None:
    fake = FakeServer("2025-11-25")
    fake.set_tasks({"status": "input_required"})
    fake.set_responses("tasks/result", MCPError(-32603, "not now"))
    async with fake.client(clock=SkippingClock(), elicitation_callback=User().answer) as client:
        handle = await client.call("work")
        with pytest.raises(TimeoutError):
            await handle.result(timeout=60)
    assert fake.count_requests("tasks/result") <= 61


@BOTH
async def test_notifications_about_other_tasks_are_ignored(version: str) -> None:
    method = "notifications/tasks" if version == "2026-07-28" else "notifications/tasks/status"
    fake = FakeServer(version)
    fake.set_tasks(WORKING)
    async with fake.client(clock=SkippingClock(longest=0.5)) as client:
        handle = await client.call("work")
        waiting = asyncio.create_task(handle.result())
        await fake.wait_until(lambda: fake.count_requests("tasks/get") > 0)
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
        assert fake.count_requests("tasks/get") == 1
        fake.complete_after()
        await fake.push(method, {**WORKING, "status": "completed"})
        assert text_of(await waiting) == "done"
    assert fake.count_requests("tasks/get") == 2


@BOTH
async def test_frequent_notifications_do_not_cause_as_many_polls(version: str) -> None:
    method = "notifications/tasks" if version == "2026-07-28" else "notifications/tasks/status"
    fake, clock = FakeServer(version), SkippingClock(longest=0.5)
    fake.set_tasks(WORKING)
    async with fake.client(clock=clock) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        for _ in range(500):
            await fake.push(method, WORKING)
            await asyncio.sleep(0)
        fake.complete_after()
        await fake.push(method, WORKING)
        assert text_of(await waiting) == "done"
    assert fake.count_requests("tasks/get") <= clock.monotonic() / 0.05 + 2


async def test_a_subscription_that_ends_at_once_does_not_cause_a_loop() -> None:
    ends = {"resultType": "complete"}
    for answer in (ends, MCPError(-32601, "Method not found"), MCPError(-32000, "SSE stream ended")):
        fake = FakeServer()
        fake.set_responses("subscriptions/listen", answer)
        fake.complete_after(*[WORKING] * 5)
        async with fake.client(clock=SkippingClock()) as client:
            assert text_of(await client.call_tool("work")) == "done"
        assert fake.count_requests("subscriptions/listen") <= 5
        assert fake.connections == 1


async def test_an_endless_tool_list_does_not_hang_a_call() -> None:
    fake = FakeServer("2025-11-25")
    fake.set_responses("tools/list", {"tools": [], "nextCursor": "again"})
    fake.set_responses("tools/call", DONE)
    async with fake.client() as client:
        assert text_of(await client.call_tool("work")) == "done"
    assert fake.count_requests("tools/list") <= 102


async def test_changed_task_support_of_a_tool_is_looked_up_again() -> None:
    fake = FakeServer("2025-11-25")
    fake.complete_after()
    async with fake.client() as client:
        await client.call("work")
        fake.set_responses("tools/list", {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})
        fake.set_responses("tools/call", MCPError(-32601, "this tool does not allow tasks"), DONE)
        assert text_of(await client.call_tool("work")) == "done"
        fake.set_responses("tools/call", MCPError(-32601, "this tool does not allow tasks"))
        with pytest.raises(MCPError, match="does not allow"):
            await client.call("work")


async def test_reusing_a_single_use_transport_raises_a_clear_error() -> None:
    fake = FakeServer()
    fake.set_responses("tasks/get", ServerDied())
    async with TaskClient(fake.connect(), clock=SkippingClock()) as client:
        handle = await client.call("work")
        with pytest.raises(ConfigurationError, match="pass a function that returns a new one"):
            await handle.result()


async def test_a_closed_client_refuses_requests() -> None:
    fake = FakeServer()
    fake.set_tasks(WORKING)
    client = fake.client(clock=SkippingClock(longest=0.5))
    with pytest.raises(ConfigurationError, match="async with"):
        await client.call("work")
    async with client:
        handle = await client.call("work")
        waiting = asyncio.create_task(handle.result())
        await fake.wait_until(lambda: fake.count_requests("tasks/get") > 0)
        following = asyncio.create_task(updates_of(handle))
    with pytest.raises(ConfigurationError, match="async with"):
        await handle.poll()
    for running in (waiting, following):
        running.cancel()
    await asyncio.wait([waiting, following])
    fake.complete_after()
    async with client:
        assert text_of(await handle.result()) == "done"


async def test_invalid_options_raise_their_own_error() -> None:
    with pytest.raises(ValueError, match="mode"):
        async with FakeServer().client(mode="2099-01-01"):
            raise AssertionError("never entered")
