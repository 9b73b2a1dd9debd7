"""What can go wrong between a client and a server over HTTP, short of either of them dying."""

import asyncio
from pathlib import Path

import pytest
from starlette.responses import Response

from raincheck.client import CallLost
from tests.support.client.callers import begin, text_of
from tests.support.client.example_server import Server
from tests.support.client.proxy import MODES, between

pytestmark = pytest.mark.anyio


@MODES
@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_server_that_answers_with_errors_of_http_is_asked_again(mode: str, status: int) -> None:
    server, bad = Server(), 3

    def fail(method: str, session: str | None) -> Response | None:
        nonlocal bad
        del session
        if method == "tasks/get" and bad:
            bad -= 1
            return Response("<html>down</html>", status, media_type="text/html")
        return None

    async with between(server, mode) as (client, proxy):
        handle = await begin(client, "pass_gate")
        proxy.instead = fail
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        assert bad == 0
        # Nothing was wrong with the connection, so nobody else has lost anything.
        assert proxy.asked.count("initialize") <= 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Session not found"}}',
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}',
    ],
)
async def test_a_session_that_the_server_has_forgotten_is_begun_anew(body: bytes) -> None:
    server, forgotten = Server(), list[str]()

    def forget(method: str, session: str | None) -> Response | None:
        if method == "tasks/get" and not forgotten and session is not None:
            forgotten.append(session)
        is_gone = session in forgotten
        return Response(body, 404, media_type="application/json" if body else None) if is_gone else None

    async with between(server, "legacy") as (client, proxy):
        handle = await begin(client, "pass_gate")
        proxy.instead = forget
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        assert proxy.asked.count("initialize") == 2


@MODES
async def test_a_call_whose_answer_gets_lost_is_made_again_if_it_has_a_key(mode: str, tmp_path: Path) -> None:
    server = Server(str(tmp_path / "tasks.db"))
    async with between(server, mode) as (client, proxy):
        proxy.hides.add("tools/call")
        handle = await begin(client, "pass_gate", key="mine")
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        assert proxy.asked.count("tools/call") == 2
    assert server.gate.passed == 1


@MODES
async def test_a_call_whose_answer_gets_lost_is_told_to_be_lost_if_it_has_none(mode: str) -> None:
    server = Server()
    async with between(server, mode) as (client, proxy):
        proxy.hides.add("tools/call")
        with pytest.raises(CallLost, match="pass_gate"):
            await client.call("pass_gate")
        # It has begun, and nobody could know.
        await server.gate.begun.wait()
        assert proxy.asked.count("tools/call") == 1


@MODES
async def test_what_goes_wrong_for_one_leaves_the_others_alone(mode: str) -> None:
    server = Server()
    async with between(server, mode) as (client, proxy):
        slow = asyncio.create_task(client.call("add_at_once", {"a": 1, "b": 2}))
        proxy.hides |= {"tasks/get"}
        handle = await begin(client, "pass_gate")
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        assert (await (await slow).result()).structured_content == {"result": 3}


async def test_news_come_without_polling() -> None:
    server = Server()
    for mode in ("auto", "legacy"):
        async with between(server, mode) as (client, proxy):
            handle = await begin(client, "pass_gate")
            waiting = asyncio.create_task(handle.result())
            await server.gate.begun.wait()
            server.gate.open.set()
            await waiting
            assert proxy.asked.count("tasks/get") <= 6
        server.gate.open.clear()
        server.gate.begun.clear()


async def test_a_stream_that_is_cut_off_is_opened_again() -> None:
    server, cut = Server(), 0

    def cut_off(method: str, session: str | None) -> Response | None:
        nonlocal cut
        del session
        if method == "subscriptions/listen" and cut < 2:
            cut += 1
            return Response(b"", media_type="text/event-stream")
        return None

    async with between(server, "auto") as (client, proxy):
        proxy.instead = cut_off
        handle = await begin(client, "pass_gate")
        waiting = asyncio.create_task(handle.result())
        while proxy.asked.count("subscriptions/listen") < 3:  # noqa: ASYNC110 - it comes with polls
            await asyncio.sleep(0.01)
        server.gate.open.set()
        assert text_of(await waiting) == "through"
        assert cut == 2
