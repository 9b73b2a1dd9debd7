"""Tests for HTTP statuses: each is reported as what it is, and at once if a retry is useless."""

from collections.abc import Callable
from typing import Any

import pytest
from mcp.client.caching import CacheConfig, InMemoryResponseCacheStore
from starlette.responses import Response

from raincheck.client import CallLost, RequestRefused, ServerUnreachable, TaskClient, record_http_status
from tests.support.client.callers import User, start_task, text_of
from tests.support.client.example_server import ExampleServer
from tests.support.client.proxy import MODES, Proxy, direct_client, proxied_client
from tests.support.client.transports import SkippingClock
from tests.support.http_server import running_app

pytestmark = pytest.mark.anyio

REFUSALS = pytest.mark.parametrize(
    ("status", "to_do"),
    [(401, "credentials"), (403, "other credentials"), (404, "address"), (413, "send less"), (418, "see the log")],
)


def always(status: int, **headers: str) -> Callable[[str, str | None], Response]:
    """Answers everything with this. It has words for people, as proxies do."""

    def answer(method: str, session: str | None) -> Response:
        del method, session
        return Response("<html>no</html>", status, headers, "text/html")

    return answer


def some(times: int, status: int, on: str, **headers: str) -> Callable[[str, str | None], Response | None]:
    """Answers so many requests of a method with this."""
    left = times

    def answer(method: str, session: str | None) -> Response | None:
        nonlocal left
        if method != on or not left:
            return None
        left -= 1
        return always(status, **headers)(method, session)

    return answer


@MODES
@REFUSALS
async def test_a_refusing_http_status_is_raised_at_once_with_a_remedy(mode: str, status: int, to_do: str) -> None:
    server, clock = ExampleServer(), SkippingClock()
    async with direct_client(server, mode, clock=clock) as (client, proxy):
        handle = await start_task(client, "pass_gate")
        proxy.override = always(status)
        with pytest.raises(RequestRefused, match=to_do) as raised:
            await handle.result()
        assert (raised.value.status, raised.value.server) == (status, client.name)
        assert f"HTTP {status}" in str(raised.value)
        # With a session, 404 says that it is over, and only a new one finds that there is more to it.
        assert len(clock.slept) == (status == 404 and mode == "legacy")
        # The task continues, and the handle stays usable.
        proxy.override = some(0, status, "tasks/get")
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"


@MODES
@REFUSALS
async def test_a_refusing_http_status_is_raised_while_connecting(mode: str, status: int, to_do: str) -> None:
    proxy = Proxy(ExampleServer().mcp.streamable_http_app())
    proxy.override = always(status)
    async with running_app(proxy) as url:
        with pytest.raises(RequestRefused, match=to_do):
            async with TaskClient(url, mode=mode):
                raise AssertionError("never entered")


@MODES
async def test_a_refused_call_does_not_raise_call_lost(mode: str) -> None:
    server = ExampleServer()
    for status in (413, 429):
        async with direct_client(server, mode) as (client, proxy):
            proxy.override = some(1, status, "tools/call")
            with pytest.raises(RequestRefused) as raised:
                await client.call("pass_gate")
            assert raised.value.status == status
    assert not server.gate.started.is_set()


@MODES
async def test_a_rate_limited_request_is_retried_after_the_servers_delay(mode: str) -> None:
    server, clock = ExampleServer(), SkippingClock()
    async with direct_client(server, mode, clock=clock) as (client, proxy):
        handle = await start_task(client, "pass_gate")
        proxy.override = some(2, 429, "tasks/get", **{"retry-after": "17"})
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
    assert clock.slept[:2] == [17, 17]


@MODES
@pytest.mark.parametrize("after", ["", "soon", "-1", "Fri, 31 Dec 1999 23:59:59 GMT", "²"])
async def test_a_rate_limited_request_without_a_delay_is_retried_with_backoff(mode: str, after: str) -> None:
    server, clock = ExampleServer(), SkippingClock()
    async with direct_client(server, mode, clock=clock) as (client, proxy):
        handle = await start_task(client, "pass_gate")
        proxy.override = some(1, 429, "tasks/get", **{"retry-after": after})
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
    assert clock.slept[0] == 0.2


@MODES
async def test_a_rate_limit_that_persists_raises_request_refused(mode: str) -> None:
    clock = SkippingClock()
    async with direct_client(ExampleServer(), mode, clock=clock, reconnect_timeout=30) as (client, proxy):
        handle = await start_task(client, "pass_gate")
        proxy.override = always(429)
        with pytest.raises(RequestRefused, match="too many requests"):
            await handle.result()
        assert 30 <= clock.monotonic() <= 40


@MODES
async def test_a_retry_delay_beyond_the_timeout_raises_at_once(mode: str) -> None:
    clock = SkippingClock()
    async with direct_client(ExampleServer(), mode, clock=clock, reconnect_timeout=30) as (client, proxy):
        handle = await start_task(client, "pass_gate")
        proxy.override = always(429, **{"retry-after": "3600"})
        with pytest.raises(RequestRefused, match="retry after 3600 s") as raised:
            await handle.result()
        assert raised.value.retry_after == 3600
        assert clock.slept == []


@MODES
@pytest.mark.parametrize("status", [408, 425, 503])
async def test_a_temporary_http_error_is_retried_and_reported_with_its_status(mode: str, status: int) -> None:
    server, clock = ExampleServer(), SkippingClock()
    async with direct_client(server, mode, clock=clock, reconnect_timeout=30) as (client, proxy):
        handle = await start_task(client, "pass_gate")
        proxy.override = always(status)
        with pytest.raises(ServerUnreachable, match=f"HTTP {status}") as raised:
            await handle.result()
        assert not isinstance(raised.value, RequestRefused)
        assert clock.monotonic() >= 30
        # It is unknown whether such a call was started.
        with pytest.raises(CallLost, match=f"HTTP {status}"):
            await client.call("pass_gate")


@MODES
async def test_a_custom_http_client_reports_statuses_through_the_hook(mode: str) -> None:
    hooks: dict[str, Any] = {"response": [record_http_status]}
    async with proxied_client(ExampleServer(), mode, hooks, clock=SkippingClock()) as (client, proxy):
        handle = await start_task(client, "pass_gate")
        proxy.override = always(401)
        with pytest.raises(RequestRefused, match="credentials"):
            await handle.result()


@pytest.mark.parametrize("status", [401, 413])
async def test_a_refused_answer_of_a_callback_ends_the_wait(status: int) -> None:
    user = User()
    async with direct_client(ExampleServer(), "auto", clock=SkippingClock(), elicitation_callback=user.answer) as (
        client,
        proxy,
    ):
        handle = await start_task(client, "confirm")
        proxy.override = some(-1, status, "tasks/update")
        with pytest.raises(RequestRefused) as raised:
            await handle.result(timeout=1_000)
        assert raised.value.status == status
        assert proxy.asked.count("tasks/update") == 1
        # The answer is still good when it is taken.
        proxy.override = some(0, status, "tasks/update")
        assert text_of(await handle.result()) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]


async def test_a_rate_limited_answer_of_a_callback_is_resent_after_the_servers_delay() -> None:
    user, clock = User(), SkippingClock()
    async with direct_client(ExampleServer(), "auto", clock=clock, elicitation_callback=user.answer) as (client, proxy):
        handle = await start_task(client, "confirm")
        proxy.override = some(2, 429, "tasks/update", **{"retry-after": "17"})
        assert text_of(await handle.result()) == "accept accept"
        assert proxy.asked.count("tasks/update") == 4
    assert clock.slept.count(17) == 2
    assert user.asked == ["Sure?", "Really?"]


async def test_statuses_of_concurrent_requests_are_kept_apart() -> None:
    server = ExampleServer()
    async with direct_client(server, "auto", clock=SkippingClock()) as (client, proxy):
        first, second = await start_task(client, "pass_gate"), await start_task(client, "pass_gate")
        proxy.override = some(1, 401, "tasks/cancel")
        with pytest.raises(RequestRefused):
            await first.cancel()
        server.gate.open.set()
        assert text_of(await second.result()) == "through"
        assert text_of(await first.result()) == "through"


async def test_a_cache_target_defaults_to_the_url_as_in_the_sdk() -> None:
    async with (
        running_app(ExampleServer().mcp.streamable_http_app()) as url,
        TaskClient(url, cache=CacheConfig(store=InMemoryResponseCacheStore(), partition="mine")) as client,
    ):
        assert (await (await client.connected()).list_tools()).tools
