"""A store that can't be read for a while after a task was made: whoever waits for the task still gets it."""

import asyncio

import pytest

from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import Shop
from tests.support.server.tools import add_gated, text_of, without_tasks
from tests.support.server.unavailable_store import Away

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


async def test_a_call_with_a_window_is_answered_with_its_task_though_it_can_not_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch)
    # Of what runs here, nobody has to read.
    shop = Shop(works=False)
    add_gated(shop, inline_for=0.05)
    async with shop.open() as caller:
        await caller.request("server/discover")
        away.be_away("view", 1_000)
        task_id = await caller.start("gated")
        assert away.missed.is_set()
        away.be_away("view", 0)
        assert (await caller.get(task_id))["status"] == "working"


async def test_a_call_with_a_window_is_told_the_end_when_the_store_is_back_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch)
    shop = Shop(works=False)
    add_gated(shop, inline_for=20)
    async with shop.open() as caller:
        await caller.request("server/discover")
        away.be_away("view", 1)
        call = asyncio.create_task(caller.call("gated"))
        await away.missed.wait()
        (task,) = (await shop.tasks.engine.list_tasks()).tasks
        await shop.tasks.engine.cancel(task.id, reason="closing time")
        with pytest.raises(Refused, match="-32000: closing time"):
            await call


async def test_a_plain_call_gets_its_result_when_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(monkeypatch)
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open() as caller:
        await caller.request("server/discover")
        away.be_away("view", 2)
        call = asyncio.create_task(without_tasks(caller).call("gated"))
        await away.missed.wait()
        gate.open.set()
        assert text_of(await call) == "through"


async def test_a_stream_pushes_the_end_when_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(monkeypatch)
    shop = Shop()
    add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        async with caller.listening(task_id) as pushed:
            assert (await anext(pushed))["status"] == "working"
            away.be_away("view", 2)
            # Of an end that its body comes to here, nobody has to read.
            await caller.cancel(task_id)
            assert [task["status"] async for task in pushed][-1] == "cancelled"
            assert away.missed.is_set()
