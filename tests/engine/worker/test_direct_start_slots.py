"""Direct starts take slots within the limits, and tasks that were not started directly are found."""

import asyncio
from typing import Any, cast

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.engine import Settings
from raincheck.stores.base import Store
from tests.support.engine.harness import EngineHarness
from tests.support.engine.hinting_store import AnonymousHintStore, CreateOnlyStore
from tests.support.engine.observed_store import ObservedStore

pytestmark = pytest.mark.anyio

SELDOM = Settings(poll_interval=86_400.0, lease=86_400.0)
"""Polls rarely, so that work is only found by notifications."""


@pytest.fixture
def observed(harness: EngineHarness) -> ObservedStore:
    observed = ObservedStore(harness.store)
    harness.store = observed.as_store
    return observed


def add_quick(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def quick() -> str:
        return "done"


def add_gated(harness: EngineHarness, name: str, **settings: Any) -> asyncio.Event:
    """Add a tool whose tasks wait for a gate."""
    gate = asyncio.Event()

    @harness.toolbox.tool(name=name, **settings)
    async def gated() -> None:
        await gate.wait()

    return gate


async def test_a_task_that_was_not_started_directly_is_claimed_although_its_hint_came_too_soon(
    harness: EngineHarness,
) -> None:
    add_quick(harness)
    harness.store = cast("Store", CreateOnlyStore(harness.store))
    async with harness.running(SELDOM), asyncio.timeout(10):
        for _ in range(5):
            assert await harness.result_of("quick") == "done"


async def test_a_task_from_elsewhere_is_claimed_after_a_hint_without_its_id(harness: EngineHarness) -> None:
    add_quick(harness)
    gate = add_gated(harness, "gated")
    harness.store = cast("Store", AnonymousHintStore(harness.store))
    async with harness.running(SELDOM) as engine, asyncio.timeout(10):
        await engine.submit("gated")
        for _ in range(3):
            task = await harness.submit_elsewhere("quick")
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
        gate.set()


@pytest.mark.looks_for_work
async def test_a_claim_in_flight_has_reserved_the_slots_of_its_tool(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    gate, other_gate = add_gated(harness, "gated", concurrency=2), add_gated(harness, "narrow", concurrency=1)
    queued = [await harness.submit_elsewhere("gated") for _ in range(2)]
    may_return = observed.block_replies("claim")
    async with harness.running(SELDOM) as engine:
        for task in queued:
            await harness.reach(task.id, Phase.RUNNING)
        # No task waits in the store, and none runs here. Two claimed ones are about to arrive.
        third, other = await engine.submit("gated"), await engine.submit("narrow")
        for event in (may_return, gate, other_gate):
            event.set()
        assert third.phase is Phase.QUEUED
        assert other.phase is Phase.RUNNING, "the claim is for another tool"
        assert (await engine.wait(third.id)).task.phase is Phase.COMPLETED
