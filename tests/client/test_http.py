"""Tests for errors between a client and a server over HTTP, while both are running."""

import asyncio
from pathlib import Path

import pytest
from starlette.responses import Response

from raincheck.client import CallLost
from tests.support.client.callers import start_task, text_of
from tests.support.client.example_server import ExampleServer
from tests.support.client.proxy import MODES, proxied_client

pytestmark = pytest.mark.anyio


@MODES
@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_request_is_retried_after_an_http_error(mode: str, status: int) -> None:
    server, bad = ExampleServer(), 3

    def fail(method: str, session: str | None) -> Response | None:
        nonlocal bad
        del session
        if method == "tasks/get" and bad:
            bad -= 1
            return Response("<html>down</html>", status, media_type="text/html")
        return None

    async with proxied_client(server, mode) as (client, proxy):
        handle = await start_task(client, "pass_gate")
        proxy.override = fail
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        assert bad == 0
        # The connection was fine, so the concurrent requests were not affected.
        assert proxy.asked.count("initialize") <= 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Session not found"}}',
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}',
    ],
)
async def test_a_dropped_session_is_replaced_by_a_new_one(body: bytes) -> None:
    server, forgotten = ExampleServer(), list[str]()

    def forget(method: str, session: str | None) -> Response | None:
        if method == "tasks/get" and not forgotten and session is not None:
            forgotten.append(session)
        is_gone = session in forgotten
        return Response(body, 404, media_type="application/json" if body else None) if is_gone else None

    async with proxied_client(server, "legacy") as (client, proxy):
        handle = await start_task(client, "pass_gate")
        proxy.override = forget
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        assert proxy.asked.count("initialize") == 2


@MODES
async def test_a_call_with_a_key_is_sent_again_if_its_response_is_lost(mode: str, tmp_path: Path) -> None:
    server = ExampleServer(str(tmp_path / "tasks.db"))
    async with proxied_client(server, mode) as (client, proxy):
        proxy.lost_responses.add("tools/call")
        handle = await start_task(client, "pass_gate", key="mine")
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        assert proxy.asked.count("tools/call") == 2
    assert server.gate.passed == 1


@MODES
async def test_a_call_without_a_key_raises_if_its_response_is_lost(mode: str) -> None:
    server = ExampleServer()
    async with proxied_client(server, mode) as (client, proxy):
        proxy.lost_responses.add("tools/call")
        with pytest.raises(CallLost, match="pass_gate"):
            await client.call("pass_gate")
        # The call was started, although the client can't know.
        await server.gate.started.wait()
        assert proxy.asked.count("tools/call") == 1


@MODES
async def test_a_failed_request_does_not_affect_concurrent_requests(mode: str) -> None:
    server = ExampleServer()
    async with proxied_client(server, mode) as (client, proxy):
        slow = asyncio.create_task(client.call("add_at_once", {"a": 1, "b": 2}))
        proxy.lost_responses |= {"tasks/get"}
        handle = await start_task(client, "pass_gate")
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        assert (await (await slow).result()).structured_content == {"result": 3}


async def test_changes_are_reported_without_polling() -> None:
    server = ExampleServer()
    for mode in ("auto", "legacy"):
        async with proxied_client(server, mode) as (client, proxy):
            handle = await start_task(client, "pass_gate")
            waiting = asyncio.create_task(handle.result())
            await server.gate.started.wait()
            server.gate.open.set()
            await waiting
            assert proxy.asked.count("tasks/get") <= 6
        server.gate.open.clear()
        server.gate.started.clear()


async def test_a_broken_stream_is_reopened() -> None:
    server, cut = ExampleServer(), 0

    def cut_off(method: str, session: str | None) -> Response | None:
        nonlocal cut
        del session
        if method == "subscriptions/listen" and cut < 2:
            cut += 1
            return Response(b"", media_type="text/event-stream")
        return None

    async with proxied_client(server, "auto") as (client, proxy):
        proxy.override = cut_off
        handle = await start_task(client, "pass_gate")
        waiting = asyncio.create_task(handle.result())
        while proxy.asked.count("subscriptions/listen") < 3:  # noqa: ASYNC110 - it comes with polls
            await asyncio.sleep(0.01)
        server.gate.open.set()
        assert text_of(await waiting) == "through"
        assert cut == 2
