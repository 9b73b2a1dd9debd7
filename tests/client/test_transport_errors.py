"""What HTTP itself says of a request: told as what it is, and at once where to ask again is no use."""

from collections.abc import Callable
from typing import Any

import pytest
from mcp.client.caching import CacheConfig, InMemoryResponseCacheStore
from starlette.responses import Response

from raincheck.client import CallLost, RequestRefused, ServerUnreachable, TaskClient, record_http_status
from tests.support.client.callers import User, begin, text_of
from tests.support.client.example_server import Server
from tests.support.client.proxy import MODES, Proxy, at_url, between
from tests.support.client.transports import SkippingClock
from tests.support.http_server import served

pytestmark = pytest.mark.anyio

REFUSALS = pytest.mark.parametrize(
    ("status", "to_do"),
    [(401, "credentials"), (403, "other credentials"), (404, "address"), (413, "send less"), (418, "logs")],
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
async def test_a_status_that_says_no_is_told_at_once_with_what_to_do(mode: str, status: int, to_do: str) -> None:
    server, clock = Server(), SkippingClock()
    async with at_url(server, mode, clock=clock) as (client, proxy):
        handle = await begin(client, "pass_gate")
        proxy.instead = always(status)
        with pytest.raises(RequestRefused, match=to_do) as raised:
            await handle.result()
        assert (raised.value.status, raised.value.server) == (status, client.name)
        assert f"HTTP {status}" in str(raised.value)
        # With a session, 404 says that it is over, and only a new one finds that there is more to it.
        assert len(clock.slept) == (status == 404 and mode == "legacy")
        # The task goes on, and so does the handle.
        proxy.instead = some(0, status, "tasks/get")
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"


@MODES
@REFUSALS
async def test_a_status_that_says_no_is_told_to_whoever_connects(mode: str, status: int, to_do: str) -> None:
    proxy = Proxy(Server().mcp.streamable_http_app())
    proxy.instead = always(status)
    async with served(proxy) as url:
        with pytest.raises(RequestRefused, match=to_do):
            async with TaskClient(url, mode=mode):
                raise AssertionError("never entered")


@MODES
async def test_a_call_that_is_refused_is_not_told_to_be_lost(mode: str) -> None:
    server = Server()
    for status in (413, 429):
        async with at_url(server, mode) as (client, proxy):
            proxy.instead = some(1, status, "tools/call")
            with pytest.raises(RequestRefused) as raised:
                await client.call("pass_gate")
            assert raised.value.status == status
    assert not server.gate.begun.is_set()


@MODES
async def test_a_server_that_is_asked_too_often_is_asked_again_when_it_says(mode: str) -> None:
    server, clock = Server(), SkippingClock()
    async with at_url(server, mode, clock=clock) as (client, proxy):
        handle = await begin(client, "pass_gate")
        proxy.instead = some(2, 429, "tasks/get", **{"retry-after": "17"})
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
    assert clock.slept[:2] == [17, 17]


@MODES
@pytest.mark.parametrize("after", ["", "soon", "-1", "Fri, 31 Dec 1999 23:59:59 GMT", "²"])
async def test_a_server_that_does_not_say_when_is_asked_again_as_any_other(mode: str, after: str) -> None:
    server, clock = Server(), SkippingClock()
    async with at_url(server, mode, clock=clock) as (client, proxy):
        handle = await begin(client, "pass_gate")
        proxy.instead = some(1, 429, "tasks/get", **{"retry-after": after})
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
    assert clock.slept[0] == 0.2


@MODES
async def test_a_server_that_is_asked_too_often_to_the_end_is_told_to_be_that(mode: str) -> None:
    clock = SkippingClock()
    async with at_url(Server(), mode, clock=clock, reconnect_timeout=30) as (client, proxy):
        handle = await begin(client, "pass_gate")
        proxy.instead = always(429)
        with pytest.raises(RequestRefused, match="too often"):
            await handle.result()
        assert 30 <= clock.monotonic() <= 40


@MODES
async def test_a_server_that_wants_more_patience_than_there_is_is_told_at_once(mode: str) -> None:
    clock = SkippingClock()
    async with at_url(Server(), mode, clock=clock, reconnect_timeout=30) as (client, proxy):
        handle = await begin(client, "pass_gate")
        proxy.instead = always(429, **{"retry-after": "3600"})
        with pytest.raises(RequestRefused, match="not within the next 3600 s") as raised:
            await handle.result()
        assert raised.value.retry_after == 3600
        assert clock.slept == []


@MODES
@pytest.mark.parametrize("status", [408, 425, 503])
async def test_what_may_pass_is_waited_for_and_told_with_its_status(mode: str, status: int) -> None:
    server, clock = Server(), SkippingClock()
    async with at_url(server, mode, clock=clock, reconnect_timeout=30) as (client, proxy):
        handle = await begin(client, "pass_gate")
        proxy.instead = always(status)
        with pytest.raises(ServerUnreachable, match=f"HTTP {status}") as raised:
            await handle.result()
        assert not isinstance(raised.value, RequestRefused)
        assert clock.monotonic() >= 30
        # Whether such a call has begun nobody knows.
        with pytest.raises(CallLost, match=f"HTTP {status}"):
            await client.call("pass_gate")


@MODES
async def test_an_http_client_of_ones_own_tells_of_statuses_by_a_hook(mode: str) -> None:
    hooks: dict[str, Any] = {"response": [record_http_status]}
    async with between(Server(), mode, hooks, clock=SkippingClock()) as (client, proxy):
        handle = await begin(client, "pass_gate")
        proxy.instead = always(401)
        with pytest.raises(RequestRefused, match="credentials"):
            await handle.result()


@pytest.mark.parametrize("status", [401, 413])
async def test_an_answer_of_a_callback_that_is_refused_ends_the_wait(status: int) -> None:
    user = User()
    async with at_url(Server(), "auto", clock=SkippingClock(), elicitation_callback=user.answer) as (client, proxy):
        handle = await begin(client, "confirm")
        proxy.instead = some(-1, status, "tasks/update")
        with pytest.raises(RequestRefused) as raised:
            await handle.result(timeout=1_000)
        assert raised.value.status == status
        assert proxy.asked.count("tasks/update") == 1
        # The answer is still good when it is taken.
        proxy.instead = some(0, status, "tasks/update")
        assert text_of(await handle.result()) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]


async def test_an_answer_of_a_callback_that_comes_too_often_is_sent_again_when_the_server_says() -> None:
    user, clock = User(), SkippingClock()
    async with at_url(Server(), "auto", clock=clock, elicitation_callback=user.answer) as (client, proxy):
        handle = await begin(client, "confirm")
        proxy.instead = some(2, 429, "tasks/update", **{"retry-after": "17"})
        assert text_of(await handle.result()) == "accept accept"
        assert proxy.asked.count("tasks/update") == 4
    assert clock.slept.count(17) == 2
    assert user.asked == ["Sure?", "Really?"]


async def test_the_statuses_of_others_are_not_taken_for_ones_own() -> None:
    server = Server()
    async with at_url(server, "auto", clock=SkippingClock()) as (client, proxy):
        first, second = await begin(client, "pass_gate"), await begin(client, "pass_gate")
        proxy.instead = some(1, 401, "tasks/cancel")
        with pytest.raises(RequestRefused):
            await first.cancel()
        server.gate.open.set()
        assert text_of(await second.result()) == "through"
        assert text_of(await first.result()) == "through"


async def test_a_cache_is_named_by_the_url_as_the_sdk_does() -> None:
    async with (
        served(Server().mcp.streamable_http_app()) as url,
        TaskClient(url, cache=CacheConfig(store=InMemoryResponseCacheStore(), partition="mine")) as client,
    ):
        assert (await (await client.connected()).list_tools()).tools
