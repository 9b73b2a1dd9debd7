"""A caller that waits for a task gets its result, even if the store is unavailable for a while."""

import asyncio

import pytest

from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated, text_of, without_tasks
from tests.support.server.unavailable_store import UnavailableStore

pytestmark = pytest.mark.anyio


async def test_a_call_with_an_inline_window_returns_its_task_when_the_store_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = UnavailableStore(monkeypatch)
    # A task that runs in this process need not be read.
    server = ExampleServer(works=False)
    add_gated(server, inline_for=0.05)
    async with server.open() as caller:
        await caller.request("server/discover")
        store.fail_next("view", 1_000)
        task_id = await caller.start("gated")
        assert store.missed.is_set()
        store.fail_next("view", 0)
        assert (await caller.get(task_id))["status"] == "working"


async def test_a_call_with_an_inline_window_returns_the_result_when_the_store_is_back_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = UnavailableStore(monkeypatch)
    server = ExampleServer(works=False)
    add_gated(server, inline_for=20)
    async with server.open() as caller:
        await caller.request("server/discover")
        store.fail_next("view", 1)
        call = asyncio.create_task(caller.call("gated"))
        await store.missed.wait()
        (task,) = (await server.tasks.engine.list_tasks()).tasks
        await server.tasks.engine.cancel(task.id, reason="closing time")
        with pytest.raises(Refused, match="-32000: closing time"):
            await call


async def test_a_call_without_tasks_gets_its_result_when_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = UnavailableStore(monkeypatch)
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open() as caller:
        await caller.request("server/discover")
        store.fail_next("view", 2)
        call = asyncio.create_task(without_tasks(caller).call("gated"))
        await store.missed.wait()
        gate.open.set()
        assert text_of(await call) == "through"


async def test_a_stream_pushes_the_end_when_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = UnavailableStore(monkeypatch)
    server = ExampleServer()
    add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        async with caller.listening(task_id) as pushed:
            assert (await anext(pushed))["status"] == "working"
            store.fail_next("view", 2)
            # The end of a task in this process need not be read.
            await caller.cancel(task_id)
            assert [task["status"] async for task in pushed][-1] == "cancelled"
            assert store.missed.is_set()
