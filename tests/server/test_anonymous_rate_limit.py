"""Unverified callers share the rate limit of one owner, however many owners they claim to be."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from raincheck import Owner
from raincheck.core.owner import OwnerKind
from raincheck.core.policies import Quota
from raincheck.errors import QuotaExceeded
from raincheck.server.limits import AnonymousRateLimit
from raincheck.server.runtime import UNSEEN_TASK_TIMEOUT
from raincheck.testing import FakeClock
from tests.server.test_owners import bearing, make_with_tokens, serving
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated, refusal

pytestmark = pytest.mark.anyio

FEW = replace(QUICK, quota=Quota(created=3))


def unverified_owner(number: int) -> Owner:
    return Owner(OwnerKind.HEADER, (str(number),))


def test_unverified_callers_share_the_rate_limit_of_one_owner() -> None:
    clock = FakeClock()
    rate_limit = AnonymousRateLimit(clock, Quota(created=3))
    for number in range(2):
        rate_limit.admit(unverified_owner(number))
    clock.advance(20)
    rate_limit.admit(Owner.anonymous())
    with pytest.raises(QuotaExceeded) as refused:
        rate_limit.admit(unverified_owner(3))
    assert refused.value.limit == 3
    assert refused.value.retry_after == timedelta(seconds=40)
    clock.advance(40)
    rate_limit.admit(unverified_owner(4))
    rate_limit.admit(unverified_owner(5))
    with pytest.raises(QuotaExceeded):
        rate_limit.admit(unverified_owner(6))


@pytest.mark.parametrize("owner", [Owner.token("https://a.example", "alice"), Owner.client("app"), Owner.local()])
def test_verified_and_local_owners_are_not_subject_to_the_shared_limit(owner: Owner) -> None:
    rate_limit = AnonymousRateLimit(FakeClock(), Quota(created=1))
    for _ in range(5):
        rate_limit.admit(owner)
    rate_limit.admit(unverified_owner(0))


def test_without_a_quota_unverified_callers_have_no_limit() -> None:
    rate_limit = AnonymousRateLimit(FakeClock(), Quota(created=None))
    for number in range(5):
        rate_limit.admit(unverified_owner(number))


async def test_invented_headers_do_not_evade_the_rate_limit() -> None:
    clock = FakeClock()
    server = ExampleServer(works=False, settings=FEW, clock=clock)
    add_gated(server)
    params: dict[str, Any] = {"name": "gated", "arguments": {}}
    async with server.open_http() as caller:

        def somebody(number: int) -> Caller:
            return Caller(caller.transport, headers={"authorization": f"Bearer made up {number}"})

        for number in range(3):
            await somebody(number).start("gated")
        refused = await refusal(somebody(3), "tools/call", params)
        assert refused.code == -32010
        assert refused.data["retryAfterMs"] == 60_000
        assert (await refusal(caller, "tools/call", params)).code == -32010
        clock.advance(61)
        await somebody(4).start("gated")


async def test_owners_with_verified_tokens_do_not_share_a_limit() -> None:
    server = make_with_tokens(works=False, settings=FEW, clock=FakeClock())
    async with serving(server) as transport:
        for name in ("alice", "mallory", "app"):
            for _ in range(3):
                await bearing(transport, name).start("quick")


async def test_the_task_of_a_caller_that_does_not_see_it_has_a_deadline_and_that_of_one_that_does_has_none() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    add_gated(server, "open").open.set()
    add_gated(server, "hidden", mode="forbidden").open.set()
    add_gated(server, "brief", timeout=60.0).open.set()

    async def deadline(tool: str) -> timedelta | None:
        task = (await server.tasks.engine.list_tasks(tool=tool)).tasks[0]
        return None if task.deadline_at is None else task.deadline_at - task.created_at

    async with server.open() as caller:
        fallback_caller = Caller(caller.transport, capabilities={})
        await caller.start("open")
        assert await deadline("open") is None
        clock.advance(1)
        # It gets the task id, if the call takes long.
        await fallback_caller.call("open")
        assert await deadline("open") is None
        await caller.call("hidden")
        assert await deadline("hidden") == UNSEEN_TASK_TIMEOUT
        await fallback_caller.call("brief")
        assert await deadline("brief") == timedelta(seconds=60)


async def test_the_task_of_a_caller_that_never_sees_it_has_a_deadline() -> None:
    server = ExampleServer(clock=FakeClock(), fallback_wait=None)
    add_gated(server).open.set()
    async with server.open(capabilities={}) as caller:
        await caller.call("gated")
        (task,) = (await server.tasks.engine.list_tasks()).tasks
        assert task.deadline_at == task.created_at + UNSEEN_TASK_TIMEOUT
