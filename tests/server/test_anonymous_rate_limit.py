"""Unverified callers share the rate limit of one owner by their addresses, however many owners they claim to be."""

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

FEW = replace(QUICK, quota=Quota(created=6))


def unverified_owner(number: int) -> Owner:
    return Owner(OwnerKind.HEADER, (str(number),))


def admitted(rate_limit: AnonymousRateLimit, host: str | None, most: int = 10_000) -> int:
    """Create tasks at a host until one is refused, and return how many were admitted."""
    for count in range(most):
        try:
            rate_limit.admit(unverified_owner(count), host)
        except QuotaExceeded:
            return count
    return most


def test_an_address_gets_half_of_what_the_others_leave_however_many_owners_it_claims_to_be() -> None:
    rate_limit = AnonymousRateLimit(FakeClock(), Quota(created=1_000))
    assert [admitted(rate_limit, f"192.0.2.{number}") for number in range(5)] == [500, 250, 125, 63, 31]
    assert admitted(rate_limit, "192.0.2.0") == 0


def test_addresses_together_stay_within_the_limit() -> None:
    rate_limit = AnonymousRateLimit(FakeClock(), Quota(created=1_000))
    assert sum(admitted(rate_limit, f"192.0.2.{number}") for number in range(256)) == 1_000


@pytest.mark.parametrize("host", ["192.0.2.1", "192.0.2.2"])
def test_a_refused_address_is_admitted_at_the_time_that_the_error_names(host: str) -> None:
    clock = FakeClock()
    rate_limit = AnonymousRateLimit(clock, Quota(created=8))
    for earlier, count in (("192.0.2.1", 4), ("192.0.2.2", 2)):
        for _ in range(count):
            rate_limit.admit(Owner.anonymous(), earlier)
            clock.advance(5)
    with pytest.raises(QuotaExceeded) as refused:
        rate_limit.admit(Owner.anonymous(), host)
    assert refused.value.retry_after is not None
    clock.advance(refused.value.retry_after.total_seconds())
    rate_limit.admit(Owner.anonymous(), host)


def test_a_limit_of_one_task_admits_one_at_a_time() -> None:
    clock = FakeClock()
    rate_limit = AnonymousRateLimit(clock, Quota(created=1))
    for _ in range(3):
        assert admitted(rate_limit, "192.0.2.1") == 1
        assert admitted(rate_limit, "192.0.2.2") == 0
        clock.advance(60)


@pytest.mark.parametrize(
    "hosts",
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"),
        ("192.0.2.1", "::ffff:192.0.2.1"),
        ("fe80::1%eth0", "fe80::2"),
        (None, "", "/run/server.sock", "testclient"),
    ],
)
def test_addresses_of_one_caller_share(hosts: tuple[str | None, ...]) -> None:
    rate_limit = AnonymousRateLimit(FakeClock(), Quota(created=100))
    assert [admitted(rate_limit, host) for host in hosts] == [50] + [0] * (len(hosts) - 1)


def test_other_networks_have_their_own_shares() -> None:
    rate_limit = AnonymousRateLimit(FakeClock(), Quota(created=100))
    hosts = ("2001:db8:0:1::1", "2001:db8:0:2::1", "192.0.2.1", None)
    assert [admitted(rate_limit, host) for host in hosts] == [50, 25, 13, 6]


def test_the_limit_remembers_no_more_than_the_tasks_of_its_window() -> None:
    clock = FakeClock()
    rate_limit = AnonymousRateLimit(clock, Quota(created=10))
    for number in range(1_000):
        admitted(rate_limit, f"192.0.{number % 256}.{number // 256}", most=2)
        clock.advance(10)
    assert len(rate_limit.created) <= 10
    assert len(rate_limit.used) <= 10


def test_the_refusal_says_what_to_do() -> None:
    rate_limit = AnonymousRateLimit(FakeClock(), Quota(created=2))
    rate_limit.admit(Owner.anonymous(), "192.0.2.1")
    with pytest.raises(QuotaExceeded) as refused:
        rate_limit.admit(Owner.anonymous(), "192.0.2.1")
    assert refused.value.limit == 2
    assert str(refused.value) == (
        "too many new tasks of unverified callers (at most 2 in all, and for one network address half of what the "
        "others leave): try again in 60 s, or authenticate"
    )


@pytest.mark.parametrize("owner", [Owner.token("https://a.example", "alice"), Owner.client("app"), Owner.local()])
def test_verified_and_local_owners_are_not_subject_to_the_shared_limit(owner: Owner) -> None:
    rate_limit = AnonymousRateLimit(FakeClock(), Quota(created=1))
    for _ in range(5):
        rate_limit.admit(owner, None)
    rate_limit.admit(unverified_owner(0), None)


def test_without_a_quota_unverified_callers_have_no_limit() -> None:
    rate_limit = AnonymousRateLimit(FakeClock(), Quota(created=None))
    for number in range(5):
        rate_limit.admit(unverified_owner(number), None)


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
            for _ in range(6):
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


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_forwarded_address_counts_if_the_proxy_is_trusted(
    monkeypatch: pytest.MonkeyPatch,
    is_trusted: bool,
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1" if is_trusted else "192.0.2.1")
    server = ExampleServer(works=False, settings=FEW, clock=FakeClock())
    add_gated(server)
    async with server.open_http() as caller:

        def forwarded(host: str) -> Caller:
            return Caller(caller.transport, headers={"x-forwarded-for": host})

        for _ in range(3):
            await forwarded("192.0.2.9").start("gated")
        params: dict[str, Any] = {"name": "gated", "arguments": {}}
        refused = await refusal(forwarded("192.0.2.9"), "tools/call", params)
        assert "authenticate" in refused.message
        if is_trusted:
            await forwarded("192.0.2.10").start("gated")
        else:
            assert (await refusal(forwarded("192.0.2.10"), "tools/call", params)).code == -32010
