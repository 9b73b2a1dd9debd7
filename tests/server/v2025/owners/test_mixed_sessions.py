"""Sessions of other kinds than usual: those that several owners share, and those of the older transport over HTTP."""

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
from tests.support.server.caller_v2025 import Came, G1Caller, connected
from tests.support.server.example import Shop
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.transports import HttpWire, Message, over_http
from tests.support.server.transports_v2025 import SESSION, VERSION_HEADER, g1_http, g1_serving
from tests.support.server.v2025.elicitation_caller import G1Caller as AskedCaller
from tests.support.server.v2025.tools import Meter, add_metered, add_saying

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

BY_SESSION: dict[str, Any] = {"anonymous": "session"}


def by_header(ctx: AnyContext) -> Owner | None:
    """As behind a proxy that knows its users."""
    request: Any = ctx.request
    return Owner.token("proxy", request.headers["x-user"]) if isinstance(request, Request) else None


def shared_shop() -> tuple[Shop, Meter, list[object]]:
    shop = Shop(owner=by_header)
    add_saying(shop)
    return shop, add_metered(shop), add_greeting(shop)


@asynccontextmanager
async def sharing(shop: Shop, way: str = "http") -> AsyncGenerator[tuple[G1Caller, G1Caller]]:
    """Two owners in one session: the first began it, and reads what comes on the session's own stream."""
    async with (
        g1_serving(shop.mcp, way) as serving,
        g1_http(serving, **{"x-user": "first"}) as wire,
        connected(wire) as first,
    ):
        await wire.listen()
        named = {name: wire.headers[name] for name in (SESSION, VERSION_HEADER)}
        async with g1_http(serving, **{"x-user": "second"}, **named) as wire_too:
            second = G1Caller(wire_too)
            yield first, second
            assert not second.faults, second.faults


def streams_of(caller: G1Caller, task_id: str) -> set[object]:
    """The streams on which something came that tells of a task, but for answers."""

    def tells(came: Came) -> bool:
        return "method" in came.message and task_id in json.dumps(came.message)

    return {came.stream for came in caller.came if tells(came)}


async def test_what_is_pushed_of_anothers_task_is_not_pushed_on_the_stream_of_the_session() -> None:
    shop, meter, _ = shared_shop()
    async with sharing(shop) as (first, second):
        await first.until(await first.start("say"), "completed")
        task_id = await second.start("metered", meta={"progressToken": "theirs"})
        # While it does not wait, it is told nothing.
        await meter.show(1, 3, "begun")
        waiting = await second.wait(task_id)
        await meter.show(2, 3, "nearly there")
        came = await second.until_progress(2)
        meter.finish()
        assert text_of(await waiting.result()) == "measured"
        # It is told where it waits for its task, and nowhere else.
        assert came.stream == waiting.id
        assert streams_of(second, task_id) == {waiting.id}
        assert second.statuses(task_id) == ["completed"]
        # What is pushed there comes in its order.
        await first.until(await first.start("say", {"words": "last"}), "completed")
        assert streams_of(first, task_id) == set()


async def test_whose_session_it_is_is_told_of_their_tasks_on_its_stream_whoever_else_is_in_it() -> None:
    shop, meter, _ = shared_shop()
    async with sharing(shop) as (first, second):
        await first.until(await first.start("say"), "completed")
        await second.result(await second.start("say"))
        task_id = await first.start("metered", meta={"progressToken": "mine"})
        await meter.show(1)
        assert (await first.until_progress(1)).stream is None
        meter.finish()
        await first.until(task_id, "completed")
        assert streams_of(first, task_id) == {None}
        assert streams_of(second, task_id) == set()


async def test_a_session_is_the_owners_who_began_it_though_another_makes_the_first_task() -> None:
    shop, _, _ = shared_shop()
    async with sharing(shop) as (first, second):
        task_id = await second.start("say")
        await second.result(task_id)
        async with asyncio.timeout(20):
            await first.until(await first.start("say"), "completed")
        assert streams_of(first, task_id) == set()


@pytest.mark.parametrize("way", ["http", "http-json"])
async def test_what_anothers_task_asks_is_not_asked_on_the_stream_of_the_session(way: str) -> None:
    shop, _, heard = shared_shop()
    async with sharing(shop, way) as (first, second):
        await first.until(await first.start("say"), "completed")
        task_id = await second.start("greet")
        await second.begin("tasks/result", {"taskId": task_id})
        if way == "http":
            question = await second.asked()
            # Nobody can guess what to answer to.
            for number in range(5):
                await first.reply({"id": f"raincheck-{number}", "params": {}}, {"action": "decline"})
            await second.reply(question, YES)
            assert text_of(await second.result(task_id)) == "Hello, Ada!"
        else:
            await shop.tasks.engine.wait(
                task_id, owner=Owner.token("proxy", "second"), until=lambda task: task.open_inputs > 0
            )
        await first.until(await first.start("say", {"words": "last"}), "completed")
        await second.cancel(task_id) if way == "http-json" else None
        assert first.questions.empty()
        assert streams_of(first, task_id) == set()
        assert heard == ([("accept", {"name": "Ada"})] if way == "http" else [])


async def test_the_ids_of_questions_are_as_good_as_random() -> None:
    shop, _, _ = shared_shop()
    ids: list[str] = []
    async with sharing(shop) as (first, _):
        for _ in range(5):
            task_id = await first.start("greet")
            waiting = await first.begin("tasks/result", {"taskId": task_id})
            question = await first.asked()
            ids.append(question["id"])
            await first.reply(question, YES)
            await waiting.result()
    numbers = [int(one.removeprefix("raincheck-"), 16) for one in ids]
    assert all(len(one) == len("raincheck-") + 16 for one in ids)
    # 64 bits: among five of them, two that begin with the same 16 are rare, and five are unheard of.
    assert len(set(numbers)) == 5
    assert len({number >> 48 for number in numbers}) > 1


class SseLink:
    """The older transport over HTTP: one stream for all that comes, and a place to post to."""

    def __init__(self, wire: HttpWire) -> None:
        self._wire = wire
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
async def by_sse(wire: HttpWire) -> AsyncGenerator[AskedCaller]:
    """A session of that kind."""
    link = SseLink(wire)
    caller = AskedCaller(link)
    link.receive = caller.receive
    listening = asyncio.create_task(link.listen())
    try:
        await caller.greet()
        yield caller
    finally:
        listening.cancel()
        await asyncio.wait([listening])


async def test_over_the_older_transport_a_task_is_found_and_listed_in_its_session() -> None:
    shop = make(**BY_SESSION)
    async with over_http(shop.mcp.sse_app(), "/sse") as wire, by_sse(wire) as caller, by_sse(wire) as other:
        assert caller.hello["capabilities"]["tasks"]["list"] == {}
        mine = [await caller.start("ask"), await caller.start("quick")]
        theirs = await other.start("quick")
        assert await caller.listed() == mine[::-1]
        assert await other.listed() == [theirs]
        waiting = await caller.wait(mine[0])
        await caller.reply(await caller.question(), result={"action": "accept", "content": {}})
        assert text_of(await waiting.result()) == "went on"
        assert (await caller.cancel(await caller.start("ask")))["status"] == "cancelled"


async def test_over_the_older_transport_a_task_is_not_there_for_another_session_though_its_id_is_known() -> None:
    shop = make(**BY_SESSION)
    async with over_http(shop.mcp.sse_app(), "/sse") as wire, by_sse(wire) as other:
        async with by_sse(wire) as caller:
            task_id = await caller.start("quick")
            await caller.result(task_id)
            assert await can_reach(caller, task_id)
            assert await everything_seen(other, task_id) == await everything_seen(other, similar_to(task_id))
        assert not await can_reach(other, task_id)
        async with by_sse(wire) as later:
            assert not await can_reach(later, task_id)
            assert await later.listed() == []


async def test_over_the_older_transport_a_task_is_reached_by_its_id_where_that_gives_the_right() -> None:
    shop = make()
    async with over_http(shop.mcp.sse_app(), "/sse") as wire, by_sse(wire) as caller, by_sse(wire) as other:
        assert "list" not in caller.hello["capabilities"]["tasks"]
        assert await can_reach(other, await caller.start("quick"))
