"""A store that can't be read for a while after a task was made: whoever waits for the task still gets it."""

import asyncio

import pytest
from away import Away
from shop import Shop
from wares import add_gated, text_of, without_tasks

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


async def test_a_call_with_a_window_is_answered_with_its_task_though_it_can_not_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch)
    shop = Shop()
    gate = add_gated(shop, inline_for=0.05)
    async with shop.open() as caller:
        await caller.request("server/discover")
        away.be_away("view", 1_000)
        task_id = await caller.start("gated")
        assert away.missed.is_set()
        away.be_away("view", 0)
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"


async def test_a_call_with_a_window_gets_its_result_when_the_store_is_back_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch)
    shop = Shop()
    gate = add_gated(shop, inline_for=20)
    gate.open.set()
    async with shop.open() as caller:
        await caller.request("server/discover")
        away.be_away("view", 1)
        assert text_of(await caller.call("gated")) == "through"
        assert away.missed.is_set()


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
    gate = add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        async with caller.listening(task_id) as pushed:
            assert (await anext(pushed))["status"] == "working"
            away.be_away("view", 2)
            gate.open.set()
            assert [task["status"] async for task in pushed][-1] == "completed"
            assert away.missed.is_set()
