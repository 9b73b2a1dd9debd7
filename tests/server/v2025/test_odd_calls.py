"""Calls and callers that make no sense: what is wrong is said in words, and nothing waits for good."""

import asyncio
from typing import Any

import pytest

from raincheck import Owner
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.v2025 import middleware
from tests.support.server.caller_v2025 import VERSION, G1Caller, calling
from tests.support.server.example import Shop
from tests.support.server.tools import add_gated
from tests.support.server.transports_v2025 import g1_memory
from tests.support.server.v2025.tools import ALICE, ON_G1_WIRES, add_saying, refused_call

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

WEEK = 7 * 24 * 3_600_000
HUGE = 10**3_999
"""4,000 digits, which is about as many as anybody reads."""

TTL = "params.task.ttl is a whole number of milliseconds"
TOKEN = "progressToken is a "  # noqa: S105 - not one that lets anybody in
META = "params._meta is an object"


@ON_G1_WIRES
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
        ({"task": HUGE}, "params.task is an object"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_wrong_with_a_call_is_told_in_few_words(way: str, odd: dict[str, Any], words: str) -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop, way, headers=ALICE) as caller:
        refused = await refused_call(caller, "say", **odd)
        assert refused.code == -32602
        assert words in refused.message
        # Nothing is repeated at length.
        assert len(str((refused.message, refused.data))) < 200
        assert (await caller.page())["tasks"] == []


@ON_G1_WIRES
@pytest.mark.parametrize("ttl", [HUGE, 10**30, 2**53, 1e15], ids=lambda value: str(value)[:20])
async def test_a_time_however_long_is_shortened_to_what_the_server_keeps(way: str, ttl: float) -> None:
    shop = Shop(works=False)
    add_saying(shop)
    async with calling(shop, way) as caller:
        assert (await caller.create("say", task={"ttl": ttl}))["ttl"] == WEEK


class Undecided:
    """Says whose a request is, when it is let."""

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


async def test_one_who_never_says_whose_a_request_is_does_not_hold_up_the_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(middleware, "OWNER_TIMEOUT", 0.05)
    undecided = Undecided()
    shop = Shop(owner=undecided)
    gate = add_gated(shop)
    gate.open.set()
    async with calling(shop) as caller:
        assert caller.welcome["protocolVersion"] == VERSION
        assert caller.welcome["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        assert undecided.given_up.is_set()
        # A request that needs to know waits, and nothing else does.
        waiting = await caller.begin("tools/call", {"name": "gated", "arguments": {}, "task": {}})
        await caller.ping()
        assert [tool["name"] for tool in (await caller.request("tools/list"))["tools"]] == ["gated"]
        assert not waiting.came.done()
        undecided.decides.set()
        task_id = (await waiting.result())["task"]["taskId"]
        # What was offered is what there was to offer then.
        assert [one["taskId"] for one in (await caller.page())["tasks"]] == [task_id]


async def test_one_who_says_in_time_whose_a_request_is_is_waited_for() -> None:
    undecided = Undecided()
    async with g1_memory(Shop(owner=undecided).mcp) as wire:
        caller = G1Caller(wire)
        greeting = asyncio.create_task(caller.greet())
        await undecided.asked.wait()
        undecided.decides.set()
        assert (await greeting)["capabilities"]["tasks"]["list"] == {}
        assert not undecided.given_up.is_set()
