"""Calls that are made again, with whatever else may come between: keys, limits, questions, a store out of reach."""

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
from raincheck.server import render
from raincheck.server.tools.policy import arguments_key
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import Shop
from tests.support.server.fallback.clock import LEASED
from tests.support.server.idempotency.example_server import BY_TIERS, SAME, Press, hosted
from tests.support.server.tools import NO_TASKS, YES, Name, add_gated, text_of
from tests.support.server.unavailable_store import Away

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

PAGE = {"page": 7}


def named(key: str) -> dict[str, Any]:
    return {"meta": {"raincheck/idempotency-key": key}}


@pytest.mark.parametrize(
    ("tool", "more"), [({"idempotency": "page"}, {}), ({}, named("mine"))], ids=["of the author", "of the caller"]
)
@BY_TIERS
async def test_a_key_that_somebody_names_holds_on_when_the_result_was_had(
    tier: str, tool: dict[str, Any], more: dict[str, Any]
) -> None:
    press = Press(tool={"annotations": SAME, **tool})
    press.open.set()
    async with hosted(press, tier) as host:
        for minutes in (0, 0, 11, 60):
            press.clock.advance(60 * minutes)
            assert await host.call(PAGE, **more) == "run 1"
        with pytest.raises(Refused, match="key"):
            await host.call({**PAGE, "how": "otherwise"}, **more)


@BY_TIERS
async def test_the_callers_own_keys_tell_calls_with_the_same_arguments_apart(tier: str) -> None:
    press = Press()
    press.open.set()
    async with hosted(press, tier) as host:
        assert await host.call(PAGE, **named("one")) == "run 1"
        assert await host.call(PAGE, **named("two")) == "run 2"
        assert await host.call(PAGE) == "run 3"
        assert await host.call(PAGE, **named("one")) == "run 1"


@pytest.mark.parametrize("key", ["the same call as mine", arguments_key("print_page", {"page": 8})])
async def test_a_callers_own_key_is_its_own_whatever_it_looks_like(key: str) -> None:
    press = Press()
    press.open.set()
    async with hosted(press, "g2") as host:
        for _ in range(2):
            assert await host.call(PAGE, **named(key)) == "run 1"
        press.clock.advance(601)
        assert await host.call(PAGE, **named(key)) == "run 1"
        assert await host.call({"page": 8}) == "run 2"


@pytest.mark.parametrize("tier", ["plain 2025-06-18", "plain 2025-11-25", "plain 2026-07-28", "g2"])
async def test_a_call_of_a_tool_that_hands_out_no_tasks_is_joined_too(tier: str) -> None:
    press = Press(tool={"mode": "forbidden"})
    async with hosted(press, tier) as host:
        first = await host.begin(PAGE)
        await press.begun.wait()
        if tier == "g2":
            assert not hasattr(first, "came")
            getattr(first, "cancel")()  # noqa: B009 - a job, as just said
            await host.flush()
        else:
            await host.leave(first)
        again = await host.begin(PAGE)
        press.open.set()
        assert text_of(await host.answer(again)) == "run 1"
        assert len(press.runs) == 1


@BY_TIERS
async def test_a_call_of_a_tool_of_somebody_else_is_joined_too(tier: str) -> None:
    press = Press()
    runs: list[int] = []

    @press.shop.mcp.tool(annotations=SAME)
    async def bind(page: int) -> str:
        runs.append(page)
        press.begun.set()
        await press.open.wait()
        return f"bound {len(runs)}"

    press.shop.tasks.enable("bind")
    async with hosted(press, tier) as host:
        first = await host.begin(PAGE, tool="bind")
        await press.begun.wait()
        await host.leave(first)
        again = await host.begin(PAGE, tool="bind")
        press.open.set()
        assert text_of(await host.result(again)) == "bound 1"
        assert await host.call(PAGE, tool="bind") == "bound 2"


@pytest.mark.parametrize("quota", [{"live": 1}, {"created": 1}], ids=str)
@BY_TIERS
async def test_who_is_joined_needs_no_room_for_another_task(tier: str, quota: Mapping[str, Any]) -> None:
    press = Press(settings=replace(LEASED, quota=Quota(**quota)))
    async with hosted(press, tier) as host:
        first = await host.begin(PAGE)
        await press.begun.wait()
        await host.leave(first)
        again = await host.begin(PAGE)
        with pytest.raises(Refused):
            await host.call({"page": 8})
        press.open.set()
        assert text_of(await host.result(again)) == "run 1"


def add_asking(press: Press, heard: list[str]) -> None:
    @press.shop.tasks.tool(annotations=SAME)
    async def sign(task: TaskContext) -> str:
        reply = await task.elicit("Who are you?", Name)
        assert reply.value is not None
        heard.append(reply.value.name)
        return f"signed by {reply.value.name}"


async def test_a_host_that_calls_again_instead_of_answering_is_asked_the_same() -> None:
    press, heard = Press(), list[str]()
    add_asking(press, heard)
    async with hosted(press, "plain 2026-07-28") as host:
        first = await host.begin(tool="sign")
        await press.clock.asleep(0.05)
        press.clock.advance(0.05)
        asked = await host.answer(first)
        again = await host.begin(tool="sign")
        await press.clock.asleep(0.05)
        press.clock.advance(0.05)
        asked_again = await host.answer(again)
        assert asked_again["inputRequests"] == asked["inputRequests"]
        caller: Any = host.caller
        state = {"requestState": asked_again["requestState"], "inputResponses": {"elicit-0": YES}}
        assert text_of(await caller.call("sign", **state)) == "signed by Ada"
        assert heard == ["Ada"]


@pytest.mark.parametrize("tier", ["plain 2025-06-18", "plain 2025-11-25"])
async def test_a_host_that_gives_up_while_its_user_thinks_is_asked_again_and_answers_once(tier: str) -> None:
    press, heard = Press(), list[str]()
    add_asking(press, heard)
    async with hosted(press, tier) as host:
        caller: Any = host.caller
        first = await host.begin(tool="sign")
        await caller.asked()
        await host.leave(first)
        again = await host.begin(tool="sign")
        await caller.reply(await caller.asked(), YES)
        assert text_of(await host.answer(again)) == "signed by Ada"
        assert heard == ["Ada"]


class KeysHeld(Away):
    """In front of a store that releases no keys, when a test says so."""

    is_holding = False

    async def release_key(self, *args: Any, **kwargs: Any) -> None:
        if self.is_holding:
            self.missed.set()
            raise StoreUnavailable("a store", "it is out of reach for a while")
        await self._store.release_key(*args, **kwargs)


@BY_TIERS
async def test_a_result_whose_key_was_not_released_is_had_once_more(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the server crashes between the two. That is the lesser evil: the other way round, a result is lost."""
    away, press = KeysHeld(monkeypatch), Press()
    press.open.set()
    async with hosted(press, tier) as host:
        away.is_holding = True
        assert await host.call(PAGE) == "run 1"
        await away.missed.wait()
        away.is_holding = False
        assert await host.call(PAGE) == "run 1"
        assert await host.call(PAGE) == "run 2"


async def test_a_result_whose_key_was_not_released_is_too_old_after_ten_minutes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away, press = KeysHeld(monkeypatch), Press()
    press.open.set()
    async with hosted(press, "plain 2025-06-18") as host:
        away.is_holding = True
        assert await host.call(PAGE) == "run 1"
        await away.missed.wait()
        away.is_holding = False
        press.clock.advance(601)
        assert await host.call(PAGE) == "run 2"
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


class SlowToRelease(Away):
    """In front of a store that takes its time to release keys."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.asked = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def release_key(self, *args: Any, **kwargs: Any) -> None:
        self.asked.set()
        await self.goes_on.wait()
        await self._store.release_key(*args, **kwargs)


@BY_TIERS
async def test_nobody_has_a_result_before_the_same_call_is_done_anew(
    tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has it may call again at once, and elsewhere."""
    away, press = SlowToRelease(monkeypatch), Press()
    monkeypatch.setattr(render, "RELEASE_TIMEOUT", 20)
    press.open.set()
    async with hosted(press, tier) as host:
        getting = asyncio.create_task(host.call(PAGE))
        await away.asked.wait()
        for _ in range(3):
            await host.flush()
        assert not getting.done()
        away.goes_on.set()
        assert await getting == "run 1"
        assert await host.call(PAGE) == "run 2"


@BY_TIERS
async def test_a_store_that_does_not_release_a_key_does_not_keep_a_result_from_anybody(
    tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, press = SlowToRelease(monkeypatch), Press()
    monkeypatch.setattr(render, "RELEASE_TIMEOUT", 0.05)
    press.open.set()
    async with hosted(press, tier) as host:
        assert await host.call(PAGE) == "run 1"
        assert away.asked.is_set()
        away.goes_on.set()


@pytest.mark.parametrize("capabilities", [None, NO_TASKS], ids=["g2", "plain"])
async def test_who_is_joined_to_what_has_ended_and_can_not_be_read_is_not_told_something_else(
    capabilities: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, shop = Away(monkeypatch), Shop(fallback_wait=0.1)
    gate = add_gated(shop, inline_for=0.1, annotations=SAME)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        gate.open.set()
        await shop.tasks.engine.wait(task_id)
        away.be_away("view", 1_000)
        host = Caller(caller.wire, capabilities=capabilities)
        # It may be refused, or have the id: anything but a result that is none.
        with suppress(Refused):
            assert task_id in str(await host.call("gated"))
        away.be_away("view", 0)
        again = await host.call("gated")
        assert (text_of(again) if "content" in again else text_of(await caller.result(task_id))) == "through"
        assert gate.task_ids == [task_id]
