"""Places and direct starts: no more at once than a tool allows, and nobody is forgotten whom nobody told of."""

import asyncio
from typing import Any, cast

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.engine import Settings
from raincheck.stores.base import Store
from tests.support.engine.harness import Bench
from tests.support.engine.hinting_store import KeepsOnly, NamesNobody
from tests.support.engine.observed_store import Watched

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

SELDOM = Settings(poll_interval=86_400.0, lease=86_400.0)
"""It looks for nothing that nobody told of."""


@pytest.fixture
def watched(bench: Bench) -> Watched:
    watched = Watched(bench.store)
    bench.store = watched.as_store
    return watched


def add_quick(bench: Bench) -> None:
    @bench.toolbox.tool
    async def quick() -> str:
        return "done"


def add_gated(bench: Bench, name: str, **settings: Any) -> asyncio.Event:
    """A tool whose tasks wait for a gate."""
    gate = asyncio.Event()

    @bench.toolbox.tool(name=name, **settings)
    async def gated() -> None:
        await gate.wait()

    return gate


async def test_one_that_was_kept_and_not_begun_is_claimed_though_it_was_heard_of_too_soon(bench: Bench) -> None:
    add_quick(bench)
    bench.store = cast("Store", KeepsOnly(bench.store))
    async with bench.working(SELDOM), asyncio.timeout(10):
        for _ in range(5):
            assert await bench.result_of("quick") == "done"


async def test_one_from_elsewhere_is_claimed_though_nobody_said_which_it_is(bench: Bench) -> None:
    add_quick(bench)
    gate = add_gated(bench, "gated")
    bench.store = cast("Store", NamesNobody(bench.store))
    async with bench.working(SELDOM) as engine, asyncio.timeout(10):
        await engine.submit("gated")
        for _ in range(3):
            task = await bench.queue("quick")
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
        gate.set()


@pytest.mark.looks_for_work
async def test_what_a_claim_on_its_way_brings_has_the_places_of_its_tool(bench: Bench, watched: Watched) -> None:
    gate, other_gate = add_gated(bench, "gated", concurrency=2), add_gated(bench, "narrow", concurrency=1)
    queued = [await bench.queue("gated") for _ in range(2)]
    may_return = watched.hold_up_replies("claim")
    async with bench.working(SELDOM) as engine:
        for task in queued:
            await bench.reach(task.id, Phase.RUNNING)
        # In the store nobody waits, and here nobody runs. Two are about to come.
        third, other = await engine.submit("gated"), await engine.submit("narrow")
        for event in (may_return, gate, other_gate):
            event.set()
        assert third.phase is Phase.QUEUED
        assert other.phase is Phase.RUNNING, "they are not of its tool"
        assert (await engine.wait(third.id)).task.phase is Phase.COMPLETED
