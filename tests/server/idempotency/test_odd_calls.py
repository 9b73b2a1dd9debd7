"""Repeated calls in unusual situations: keys, quotas, questions, an unavailable store."""

# pyright: reportUnusedFunction=false

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from raincheck import Quota, TaskContext
from raincheck.errors import StoreUnavailable
from raincheck.server import results
from raincheck.server.tools.policy import arguments_key
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.idempotency.example_server import BY_TIERS, SAME, PrintServer, connected_host
from tests.support.server.tools import NO_TASKS, YES, Name, add_gated, text_of
from tests.support.server.unavailable_store import UnavailableStore

pytestmark = pytest.mark.anyio

PAGE = {"page": 7}


def named(key: str) -> dict[str, Any]:
    return {"meta": {"raincheck/idempotency-key": key}}


@pytest.mark.parametrize(
    ("tool", "more"), [({"idempotency": "page"}, {}), ({}, named("mine"))], ids=["of the author", "of the caller"]
)
@BY_TIERS
async def test_an_explicit_key_stays_in_use_after_its_result_was_retrieved(
    tier: str, tool: dict[str, Any], more: dict[str, Any]
) -> None:
    print_server = PrintServer(tool={"annotations": SAME, **tool})
    print_server.open.set()
    async with connected_host(print_server, tier) as host:
        for minutes in (0, 0, 11, 60):
            print_server.clock.advance(60 * minutes)
            assert await host.call(PAGE, **more) == "run 1"
        with pytest.raises(Refused, match="key"):
            await host.call({**PAGE, "how": "otherwise"}, **more)


@BY_TIERS
async def test_the_callers_own_keys_distinguish_calls_with_the_same_arguments(tier: str) -> None:
    print_server = PrintServer()
    print_server.open.set()
    async with connected_host(print_server, tier) as host:
        assert await host.call(PAGE, **named("one")) == "run 1"
        assert await host.call(PAGE, **named("two")) == "run 2"
        assert await host.call(PAGE) == "run 3"
        assert await host.call(PAGE, **named("one")) == "run 1"


@pytest.mark.parametrize("key", ["the same call as mine", arguments_key("print_page", {"page": 8})])
async def test_a_callers_own_key_is_its_own_whatever_it_looks_like(key: str) -> None:
    print_server = PrintServer()
    print_server.open.set()
    async with connected_host(print_server, "v2026") as host:
        for _ in range(2):
            assert await host.call(PAGE, **named(key)) == "run 1"
        print_server.clock.advance(601)
        assert await host.call(PAGE, **named(key)) == "run 1"
        assert await host.call({"page": 8}) == "run 2"


@pytest.mark.parametrize("tier", ["fallback 2025-06-18", "fallback 2025-11-25", "fallback 2026-07-28", "v2026"])
async def test_a_call_of_a_tool_that_forbids_tasks_is_joined(tier: str) -> None:
    print_server = PrintServer(tool={"mode": "forbidden"})
    async with connected_host(print_server, tier) as host:
        first = await host.begin(PAGE)
        await print_server.started.wait()
        if tier == "v2026":
            assert not hasattr(first, "came")
            getattr(first, "cancel")()  # noqa: B009 - an asyncio task, as asserted
            await host.flush()
        else:
            await host.leave(first)
        again = await host.begin(PAGE)
        print_server.open.set()
        assert text_of(await host.answer(again)) == "run 1"
        assert len(print_server.runs) == 1


@BY_TIERS
async def test_a_call_of_an_enabled_tool_is_joined(tier: str) -> None:
    print_server = PrintServer()
    runs: list[int] = []

    @print_server.server.mcp.tool(annotations=SAME)
    async def bind(page: int) -> str:
        runs.append(page)
        print_server.started.set()
        await print_server.open.wait()
        return f"bound {len(runs)}"

    print_server.server.tasks.enable("bind")
    async with connected_host(print_server, tier) as host:
        first = await host.begin(PAGE, tool="bind")
        await print_server.started.wait()
        await host.leave(first)
        again = await host.begin(PAGE, tool="bind")
        print_server.open.set()
        assert text_of(await host.result(again)) == "bound 1"
        assert await host.call(PAGE, tool="bind") == "bound 2"


@pytest.mark.parametrize("quota", [{"live": 1}, {"created": 1}], ids=str)
@BY_TIERS
async def test_a_joined_call_does_not_count_against_the_quota(tier: str, quota: Mapping[str, Any]) -> None:
    print_server = PrintServer(settings=replace(LONG_LEASE, quota=Quota(**quota)))
    async with connected_host(print_server, tier) as host:
        first = await host.begin(PAGE)
        await print_server.started.wait()
        await host.leave(first)
        again = await host.begin(PAGE)
        with pytest.raises(Refused):
            await host.call({"page": 8})
        print_server.open.set()
        assert text_of(await host.result(again)) == "run 1"


def add_question(print_server: PrintServer, received: list[str]) -> None:
    @print_server.server.tasks.tool(annotations=SAME)
    async def sign(task: TaskContext) -> str:
        reply = await task.elicit("Who are you?", Name)
        assert reply.value is not None
        received.append(reply.value.name)
        return f"signed by {reply.value.name}"


async def test_a_host_that_repeats_the_call_instead_of_answering_gets_the_same_question() -> None:
    print_server, received = PrintServer(), list[str]()
    add_question(print_server, received)
    async with connected_host(print_server, "fallback 2026-07-28") as host:
        first = await host.begin(tool="sign")
        await print_server.clock.asleep(0.05)
        print_server.clock.advance(0.05)
        asked = await host.answer(first)
        again = await host.begin(tool="sign")
        await print_server.clock.asleep(0.05)
        print_server.clock.advance(0.05)
        asked_again = await host.answer(again)
        assert asked_again["inputRequests"] == asked["inputRequests"]
        caller: Any = host.caller
        state = {"requestState": asked_again["requestState"], "inputResponses": {"elicit-0": YES}}
        assert text_of(await caller.call("sign", **state)) == "signed by Ada"
        assert received == ["Ada"]


@pytest.mark.parametrize("tier", ["fallback 2025-06-18", "fallback 2025-11-25"])
async def test_a_host_that_gives_up_while_its_user_thinks_is_asked_again_and_answers_once(tier: str) -> None:
    print_server, received = PrintServer(), list[str]()
    add_question(print_server, received)
    async with connected_host(print_server, tier) as host:
        caller: Any = host.caller
        first = await host.begin(tool="sign")
        await caller.asked()
        await host.leave(first)
        again = await host.begin(tool="sign")
        await caller.reply(await caller.asked(), YES)
        assert text_of(await host.answer(again)) == "signed by Ada"
        assert received == ["Ada"]


class KeysHeld(UnavailableStore):
    """Wraps a store, and refuses to release keys when a test wants it."""

    is_holding = False

    async def release_key(self, *args: Any, **kwargs: Any) -> None:
        if self.is_holding:
            self.missed.set()
            raise StoreUnavailable("a store", "it is out of reach for a while")
        await self._store.release_key(*args, **kwargs)


@BY_TIERS
async def test_a_result_whose_key_was_not_released_is_returned_again(
    tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the server crashes between the two. That is the lesser evil: the other way round, a result is lost."""
    store, print_server = KeysHeld(monkeypatch), PrintServer()
    print_server.open.set()
    async with connected_host(print_server, tier) as host:
        store.is_holding = True
        assert await host.call(PAGE) == "run 1"
        await store.missed.wait()
        store.is_holding = False
        assert await host.call(PAGE) == "run 1"
        assert await host.call(PAGE) == "run 2"


async def test_a_result_whose_key_was_not_released_is_too_old_after_ten_minutes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, print_server = KeysHeld(monkeypatch), PrintServer()
    print_server.open.set()
    async with connected_host(print_server, "fallback 2025-06-18") as host:
        store.is_holding = True
        assert await host.call(PAGE) == "run 1"
        await store.missed.wait()
        store.is_holding = False
        print_server.clock.advance(601)
        assert await host.call(PAGE) == "run 2"
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


class SlowToRelease(UnavailableStore):
    """In front of a store that takes its time to release keys."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.asked = asyncio.Event()
        self.may_release = asyncio.Event()

    async def release_key(self, *args: Any, **kwargs: Any) -> None:
        self.asked.set()
        await self.may_release.wait()
        await self._store.release_key(*args, **kwargs)


@BY_TIERS
async def test_a_result_is_sent_only_when_the_same_call_would_run_again(
    tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has it may call again at once, and elsewhere."""
    store, print_server = SlowToRelease(monkeypatch), PrintServer()
    monkeypatch.setattr(results, "RELEASE_TIMEOUT", 20)
    print_server.open.set()
    async with connected_host(print_server, tier) as host:
        getting = asyncio.create_task(host.call(PAGE))
        await store.asked.wait()
        for _ in range(3):
            await host.flush()
        assert not getting.done()
        store.may_release.set()
        assert await getting == "run 1"
        assert await host.call(PAGE) == "run 2"


@BY_TIERS
async def test_a_failed_release_of_a_key_does_not_withhold_the_result(
    tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, print_server = SlowToRelease(monkeypatch), PrintServer()
    monkeypatch.setattr(results, "RELEASE_TIMEOUT", 0.05)
    print_server.open.set()
    async with connected_host(print_server, tier) as host:
        assert await host.call(PAGE) == "run 1"
        assert store.asked.is_set()
        store.may_release.set()


@pytest.mark.parametrize("capabilities", [None, NO_TASKS], ids=["v2026", "fallback"])
async def test_a_call_joined_to_an_unreadable_ended_task_gets_no_other_result(
    capabilities: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, server = UnavailableStore(monkeypatch), ExampleServer(fallback_wait=0.1)
    gate = add_gated(server, inline_for=0.1, annotations=SAME)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        gate.open.set()
        await server.tasks.engine.wait(task_id)
        store.fail_next("view", 1_000)
        host = Caller(caller.transport, capabilities=capabilities)
        # It may be refused, or have the id: anything but a result that is none.
        with suppress(Refused):
            assert task_id in str(await host.call("gated"))
        store.fail_next("view", 0)
        again = await host.call("gated")
        assert (text_of(again) if "content" in again else text_of(await caller.result(task_id))) == "through"
        assert gate.task_ids == [task_id]
