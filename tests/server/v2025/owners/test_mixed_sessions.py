"""Sessions that several owners share, and sessions of the SSE transport."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request

from raincheck import Owner
from raincheck.server.sdk_compat import AnyContext
from tests.server.test_owners import make, similar_to
from tests.server.v2025.owners.test_owners import can_reach, everything_seen
from tests.support.server.caller_v2025 import ReceivedMessage, V2025Caller, connected
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.transports import HttpTransport, Message, over_http
from tests.support.server.transports_v2025 import SESSION, VERSION_HEADER, v2025_http, v2025_serving
from tests.support.server.v2025.elicitation_caller import ElicitationCaller
from tests.support.server.v2025.tools import Meter, add_echo, add_metered

pytestmark = pytest.mark.anyio

BY_SESSION: dict[str, Any] = {"anonymous": "session"}


def by_header(ctx: AnyContext) -> Owner | None:
    """As behind a proxy that knows its users."""
    request: Any = ctx.request
    return Owner.token("proxy", request.headers["x-user"]) if isinstance(request, Request) else None


def make_shared_server() -> tuple[ExampleServer, Meter, list[object]]:
    server = ExampleServer(owner=by_header)
    add_echo(server)
    return server, add_metered(server), add_greeting(server)


@asynccontextmanager
async def sharing(server: ExampleServer, way: str = "http") -> AsyncGenerator[tuple[V2025Caller, V2025Caller]]:
    """Two owners in one session: the first opened it, and reads the session's own stream."""
    async with (
        v2025_serving(server.mcp, way) as serving,
        v2025_http(serving, **{"x-user": "first"}) as transport,
        connected(transport) as first,
    ):
        await transport.listen()
        named = {name: transport.headers[name] for name in (SESSION, VERSION_HEADER)}
        async with v2025_http(serving, **{"x-user": "second"}, **named) as wire_too:
            second = V2025Caller(wire_too)
            yield first, second
            assert not second.faults, second.faults


def streams_of(caller: V2025Caller, task_id: str) -> set[object]:
    """The streams on which messages about a task arrived, except answers."""

    def tells(came: ReceivedMessage) -> bool:
        return "method" in came.message and task_id in json.dumps(came.message)

    return {came.stream for came in caller.received if tells(came)}


async def test_notifications_about_another_owners_task_are_not_sent_on_the_sessions_stream() -> None:
    server, meter, _ = make_shared_server()
    async with sharing(server) as (first, second):
        await first.until(await first.start("say"), "completed")
        task_id = await second.start("metered", meta={"progressToken": "theirs"})
        # While it does not wait, nothing is pushed to it.
        await meter.show(1, 3, "begun")
        waiting = await second.wait(task_id)
        await meter.show(2, 3, "nearly there")
        came = await second.until_progress(2)
        meter.finish()
        assert text_of(await waiting.result()) == "measured"
        # Notifications arrive where it waits for its task, and nowhere else.
        assert came.stream == waiting.id
        assert streams_of(second, task_id) == {waiting.id}
        assert second.statuses(task_id) == ["completed"]
        # Notifications arrive in order.
        await first.until(await first.start("say", {"words": "last"}), "completed")
        assert streams_of(first, task_id) == set()


async def test_the_sessions_owner_gets_notifications_on_its_stream_even_if_other_owners_use_it() -> None:
    server, meter, _ = make_shared_server()
    async with sharing(server) as (first, second):
        await first.until(await first.start("say"), "completed")
        await second.result(await second.start("say"))
        task_id = await first.start("metered", meta={"progressToken": "mine"})
        await meter.show(1)
        assert (await first.until_progress(1)).stream is None
        meter.finish()
        await first.until(task_id, "completed")
        assert streams_of(first, task_id) == {None}
        assert streams_of(second, task_id) == set()


async def test_a_session_belongs_to_the_owner_that_opened_it_although_another_creates_the_first_task() -> None:
    server, _, _ = make_shared_server()
    async with sharing(server) as (first, second):
        task_id = await second.start("say")
        await second.result(task_id)
        async with asyncio.timeout(20):
            await first.until(await first.start("say"), "completed")
        assert streams_of(first, task_id) == set()


@pytest.mark.parametrize("way", ["http", "http-json"])
async def test_questions_of_another_owners_task_are_not_asked_on_the_sessions_stream(way: str) -> None:
    server, _, received = make_shared_server()
    async with sharing(server, way) as (first, second):
        await first.until(await first.start("say"), "completed")
        task_id = await second.start("greet")
        await second.begin("tasks/result", {"taskId": task_id})
        if way == "http":
            question = await second.asked()
            # No caller can guess the request id to answer.
            for number in range(5):
                await first.reply({"id": f"raincheck-{number}", "params": {}}, {"action": "decline"})
            await second.reply(question, YES)
            assert text_of(await second.result(task_id)) == "Hello, Ada!"
        else:
            await server.tasks.engine.wait(
                task_id, owner=Owner.token("proxy", "second"), until=lambda task: task.open_inputs > 0
            )
        await first.until(await first.start("say", {"words": "last"}), "completed")
        await second.cancel(task_id) if way == "http-json" else None
        assert first.questions.empty()
        assert streams_of(first, task_id) == set()
        assert received == ([("accept", {"name": "Ada"})] if way == "http" else [])


async def test_the_ids_of_questions_are_as_good_as_random() -> None:
    server, _, _ = make_shared_server()
    ids: list[str] = []
    async with sharing(server) as (first, _):
        for _ in range(5):
            task_id = await first.start("greet")
            waiting = await first.begin("tasks/result", {"taskId": task_id})
            question = await first.asked()
            ids.append(question["id"])
            await first.reply(question, YES)
            await waiting.result()
    numbers = [int(one.removeprefix("raincheck-"), 16) for one in ids]
    assert all(len(one) == len("raincheck-") + 16 for one in ids)
    # 64 bits: among five ids, it is rare that two start with the same 16 bits, and that five do is impossible.
    assert len(set(numbers)) == 5
    assert len({number >> 48 for number in numbers}) > 1


class SseLink:
    """The SSE transport: one stream for all messages from the server, and an endpoint to post to."""

    def __init__(self, transport: HttpTransport) -> None:
        self._wire = transport
        self._place: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.receive: Callable[[Message, object], None]

    async def send(self, message: Message) -> None:
        url = self._wire.url.removesuffix("/sse") + await self._place
        response = await self._wire.client.post(url, json=message)
        assert response.status_code == 202, response.text

    async def listen(self) -> None:
        async with self._wire.client.stream("GET", self._wire.url, timeout=None) as response:
            event = ""
            async for line in response.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    event = value
                elif field == "data" and event == "endpoint":
                    self._place.set_result(value)
                elif field == "data" and value:
                    self.receive(json.loads(value), None)


@asynccontextmanager
async def by_sse(transport: HttpTransport) -> AsyncGenerator[ElicitationCaller]:
    """A session of that kind."""
    link = SseLink(transport)
    caller = ElicitationCaller(link)
    link.receive = caller.receive
    listening = asyncio.create_task(link.listen())
    try:
        await caller.greet()
        yield caller
    finally:
        listening.cancel()
        await asyncio.wait([listening])


async def test_over_the_sse_transport_a_task_is_visible_and_listed_in_its_session() -> None:
    server = make(**BY_SESSION)
    async with (
        over_http(server.mcp.sse_app(), "/sse") as transport,
        by_sse(transport) as caller,
        by_sse(transport) as other,
    ):
        assert caller.hello["capabilities"]["tasks"]["list"] == {}
        mine = [await caller.start("ask"), await caller.start("quick")]
        theirs = await other.start("quick")
        assert await caller.list_ids() == mine[::-1]
        assert await other.list_ids() == [theirs]
        waiting = await caller.wait(mine[0])
        await caller.reply(await caller.question(), result={"action": "accept", "content": {}})
        assert text_of(await waiting.result()) == "went on"
        assert (await caller.cancel(await caller.start("ask")))["status"] == "cancelled"


async def test_over_the_sse_transport_a_task_is_unknown_to_another_session_even_with_its_id() -> None:
    server = make(**BY_SESSION)
    async with over_http(server.mcp.sse_app(), "/sse") as transport, by_sse(transport) as other:
        async with by_sse(transport) as caller:
            task_id = await caller.start("quick")
            await caller.result(task_id)
            assert await can_reach(caller, task_id)
            assert await everything_seen(other, task_id) == await everything_seen(other, similar_to(task_id))
        assert not await can_reach(other, task_id)
        async with by_sse(transport) as later:
            assert not await can_reach(later, task_id)
            assert await later.list_ids() == []


async def test_over_the_sse_transport_a_task_is_reached_by_id_with_anonymous_ids() -> None:
    server = make()
    async with (
        over_http(server.mcp.sse_app(), "/sse") as transport,
        by_sse(transport) as caller,
        by_sse(transport) as other,
    ):
        assert "list" not in caller.hello["capabilities"]["tasks"]
        assert await can_reach(other, await caller.start("quick"))
