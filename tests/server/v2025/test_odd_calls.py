"""Malformed calls are rejected with a reason, and no owner function blocks the handshake forever."""

import asyncio
from typing import Any

import pytest

from raincheck import Owner
from raincheck.server import middleware
from raincheck.server.sdk_compat import AnyContext
from tests.support.server.caller_v2025 import VERSION, V2025Caller, v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated
from tests.support.server.transports_v2025 import v2025_memory
from tests.support.server.v2025.tools import ALICE, ON_V2025_TRANSPORTS, add_echo, refused_call

pytestmark = pytest.mark.anyio

WEEK = 7 * 24 * 3_600_000
HUGE = 10**3_999
"""4,000 digits, which is close to the limit of most JSON readers."""

TTL = "params.task.ttl must be a whole number of milliseconds"
TOKEN = "progressToken must be a "  # noqa: S105 - not a secret
META = "params._meta must be an object"


@ON_V2025_TRANSPORTS
@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"task": {"ttl": 1e308}}, TTL),
        ({"task": {"ttl": 1e16}}, TTL),
        ({"task": {"ttl": -1e308}}, TTL),
        ({"task": {"ttl": -HUGE}}, TTL),
        ({"task": {"ttl": str(HUGE)}}, TTL),
        ({"_meta": {"progressToken": None}}, TOKEN),
        ({"_meta": {"progressToken": 1.5}}, TOKEN),
        ({"_meta": {"progressToken": True}}, TOKEN),
        ({"_meta": {"progressToken": ["t" * 4_000]}}, TOKEN),
        ({"_meta": 5}, META),
        ({"_meta": -HUGE}, META),
        ({"_meta": ["m" * 4_000]}, META),
        ({"_meta": "m" * 4_000}, META),
        ({"task": HUGE}, "params.task must be an object"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_errors_about_a_bad_call_are_short(way: str, odd: dict[str, Any], words: str) -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server, way, headers=ALICE) as caller:
        refused = await refused_call(caller, "say", **odd)
        assert refused.code == -32602
        assert words in refused.message
        # Nothing is repeated at length.
        assert len(str((refused.message, refused.data))) < 200
        assert (await caller.page())["tasks"] == []


@ON_V2025_TRANSPORTS
@pytest.mark.parametrize("ttl", [HUGE, 10**30, 2**53, 1e15], ids=lambda value: str(value)[:20])
async def test_a_very_long_ttl_is_shortened_to_the_servers_limit(way: str, ttl: float) -> None:
    server = ExampleServer(works=False)
    add_echo(server)
    async with v2025_caller(server, way) as caller:
        assert (await caller.create("say", task={"ttl": ttl}))["ttl"] == WEEK


class BlockedOwnerFunction:
    """An owner function that returns when the test lets it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.decides = asyncio.Event()
        self.given_up = asyncio.Event()

    async def __call__(self, _: AnyContext) -> Owner:
        self.asked.set()
        try:
            await self.decides.wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        return Owner.token("", "ada")


async def test_an_owner_function_that_never_returns_does_not_block_the_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(middleware, "OWNER_TIMEOUT", 0.05)
    undecided = BlockedOwnerFunction()
    server = ExampleServer(owner=undecided)
    gate = add_gated(server)
    gate.open.set()
    async with v2025_caller(server) as caller:
        assert caller.welcome["protocolVersion"] == VERSION
        assert caller.welcome["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        assert undecided.given_up.is_set()
        # A request that needs to know waits, and nothing else does.
        waiting = await caller.begin("tools/call", {"name": "gated", "arguments": {}, "task": {}})
        await caller.ping()
        assert [tool["name"] for tool in (await caller.request("tools/list"))["tools"]] == ["gated"]
        assert not waiting.received.done()
        undecided.decides.set()
        task_id = (await waiting.result())["task"]["taskId"]
        # The declared capabilities are those that were known at the handshake.
        assert [one["taskId"] for one in (await caller.page())["tasks"]] == [task_id]


async def test_an_owner_function_that_returns_in_time_is_awaited() -> None:
    undecided = BlockedOwnerFunction()
    async with v2025_memory(ExampleServer(owner=undecided).mcp) as transport:
        caller = V2025Caller(transport)
        greeting = asyncio.create_task(caller.greet())
        await undecided.asked.wait()
        undecided.decides.set()
        assert (await greeting)["capabilities"]["tasks"]["list"] == {}
        assert not undecided.given_up.is_set()


@ON_V2025_TRANSPORTS
@pytest.mark.parametrize("params", [{"name": "echo", "task": {"ttl": "long"}}, {"name": ["echo"]}, {"task": 7}])
async def test_a_call_without_an_id_is_a_notification_and_writes_no_traceback_to_the_log(
    way: str, params: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server, way) as caller:
        await caller.notify("tools/call", params)
        await caller.request("ping")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
