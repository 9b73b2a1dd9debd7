"""Callers whom nobody vouches for make no more tasks together than one owner may, however many they say they are."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from raincheck import Owner
from raincheck.core.limits import Quota
from raincheck.core.owner import OwnerKind
from raincheck.errors import QuotaExceeded
from raincheck.server.identity import AnonymousRateLimit
from raincheck.server.runtime import UNSEEN_TASK_TIMEOUT
from raincheck.testing import FakeClock
from tests.server.test_owners import bearing, make_with_tokens, serving
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import add_gated, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

FEW = replace(QUICK, quota=Quota(created=3))


def stranger(number: int) -> Owner:
    return Owner(OwnerKind.HEADER, (str(number),))


def test_strangers_share_what_one_owner_may_make_in_a_minute() -> None:
    clock = FakeClock()
    strangers = AnonymousRateLimit(clock, Quota(created=3))
    for number in range(2):
        strangers.admit(stranger(number))
    clock.advance(20)
    strangers.admit(Owner.anonymous())
    with pytest.raises(QuotaExceeded) as refused:
        strangers.admit(stranger(3))
    assert refused.value.limit == 3
    assert refused.value.retry_after == timedelta(seconds=40)
    clock.advance(40)
    strangers.admit(stranger(4))
    strangers.admit(stranger(5))
    with pytest.raises(QuotaExceeded):
        strangers.admit(stranger(6))


@pytest.mark.parametrize("owner", [Owner.token("https://a.example", "alice"), Owner.client("app"), Owner.local()])
def test_those_who_are_known_are_not_among_them(owner: Owner) -> None:
    strangers = AnonymousRateLimit(FakeClock(), Quota(created=1))
    for _ in range(5):
        strangers.admit(owner)
    strangers.admit(stranger(0))


def test_where_there_is_no_bound_there_is_none_for_strangers() -> None:
    strangers = AnonymousRateLimit(FakeClock(), Quota(created=None))
    for number in range(5):
        strangers.admit(stranger(number))


async def test_made_up_headers_do_not_get_past_the_rate() -> None:
    clock = FakeClock()
    shop = Shop(works=False, settings=FEW, clock=clock)
    add_gated(shop)
    params: dict[str, Any] = {"name": "gated", "arguments": {}}
    async with shop.open_http() as caller:

        def somebody(number: int) -> Caller:
            return Caller(caller.wire, headers={"authorization": f"Bearer made up {number}"})

        for number in range(3):
            await somebody(number).start("gated")
        refused = await refusal(somebody(3), "tools/call", params)
        assert refused.code == -32010
        assert refused.data["retryAfterMs"] == 60_000
        assert (await refusal(caller, "tools/call", params)).code == -32010
        clock.advance(61)
        await somebody(4).start("gated")


async def test_those_with_verified_tokens_are_not_affected_by_each_other() -> None:
    shop = make_with_tokens(works=False, settings=FEW, clock=FakeClock())
    async with serving(shop) as wire:
        for name in ("alice", "mallory", "app"):
            for _ in range(3):
                await bearing(wire, name).start("quick")


async def test_the_task_of_a_caller_that_does_not_see_it_has_a_deadline_and_that_of_one_that_does_has_none() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)
    add_gated(shop, "open").open.set()
    add_gated(shop, "hidden", mode="forbidden").open.set()
    add_gated(shop, "brief", timeout=60.0).open.set()

    async def deadline(tool: str) -> timedelta | None:
        task = (await shop.tasks.engine.list_tasks(tool=tool)).tasks[0]
        return None if task.deadline_at is None else task.deadline_at - task.created_at

    async with shop.open() as caller:
        plain = Caller(caller.wire, capabilities={})
        await caller.start("open")
        assert await deadline("open") is None
        clock.advance(1)
        # It is told of the task, if that takes long.
        await plain.call("open")
        assert await deadline("open") is None
        await caller.call("hidden")
        assert await deadline("hidden") == UNSEEN_TASK_TIMEOUT
        await plain.call("brief")
        assert await deadline("brief") == timedelta(seconds=60)


async def test_the_task_of_a_caller_that_is_never_told_of_it_has_a_deadline() -> None:
    shop = Shop(clock=FakeClock(), fallback_wait=None)
    add_gated(shop).open.set()
    async with shop.open(capabilities={}) as caller:
        await caller.call("gated")
        (task,) = (await shop.tasks.engine.list_tasks()).tasks
        assert task.deadline_at == task.created_at + UNSEEN_TASK_TIMEOUT
