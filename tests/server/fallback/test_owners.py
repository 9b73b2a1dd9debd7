"""Whose a task is, for callers without tasks: an id gives nobody else the right to it, and no words give it away."""

# pyright: reportUnusedFunction=false

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from raincheck import Owner, TaskContext
from tests.server.test_owners import make_with_tokens
from tests.support.server.example import Shop
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    FIVE,
    LONGEST,
    MODERN,
    Model,
    handle_of,
    hosted,
    opened,
    told,
)
from tests.support.server.tools import add_gated, add_greeting
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import ALICE, BOB

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

UNKNOWN = "0" * 44


async def all_five(model: Model, task_id: Any, **more: Any) -> list[Message]:
    """What each of the tools answers for an id."""
    answers = [await model.call(name, {"task_id": task_id, **more}) for name in FIVE if name != "task_answer"]
    return [*answers, await model.call("task_answer", {"task_id": task_id, "answer": {"name": "Eve"}, **more})]


def without_id(answers: list[Message], task_id: str) -> str:
    return str(answers).replace(task_id, "THE-ID")


@BY_VERSIONS
@pytest.mark.parametrize("state", ["working", "asking", "completed", "failed", "cancelled"])
async def test_another_owners_task_looks_exactly_like_an_unknown_one_in_all_five(state: str, version: str) -> None:
    shop = Shop(fallback_wait=0.1)
    heard = add_greeting(shop, "ask")
    gate = add_gated(shop, "work")

    @shop.tasks.tool
    async def break_down(task: TaskContext) -> str:
        await task.sleep(0.3)
        raise ValueError("secret")

    tool = {"asking": "ask", "failed": "break_down"}.get(state, "work")
    async with opened(shop, "http") as place, place.host(version, headers=ALICE) as alice:
        task_id = handle_of(await alice.call(tool))
        if state == "completed":
            gate.open.set()
            await alice.call("task_wait", {"task_id": task_id})
        elif state == "cancelled":
            await alice.call("task_cancel", {"task_id": task_id})
        before = await alice.call("task_status", {"task_id": task_id})
        for other in (BOB, {}):
            async with place.host(version, headers=other) as bob:
                theirs, nobodys = await all_five(bob, task_id), await all_five(bob, UNKNOWN)
                assert without_id(theirs, task_id) == without_id(nobodys, UNKNOWN)
                assert {told(one) for one in nobodys} == {told(nobodys[0])}
                assert all(one["isError"] for one in nobodys)
                assert not any("structuredContent" in one for one in nobodys)
        after = await alice.call("task_status", {"task_id": task_id})
        assert after["structuredContent"]["status"] == before["structuredContent"]["status"]
    assert heard == []


async def test_whoever_asks_for_a_task_that_is_not_theirs_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(fallback_wait=0.1)
    add_gated(shop)
    async with opened(shop, "http") as place, place.host(headers=ALICE) as alice, place.host(headers=BOB) as bob:
        task_id = handle_of(await alice.call("gated"))
        caplog.set_level(logging.INFO, "raincheck.audit")
        caplog.clear()
        await all_five(bob, task_id)
        assert len([one for one in caplog.records if one.name == "raincheck.audit"]) == len(FIVE)


async def test_an_id_that_is_far_too_long_is_noted_shortly(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    add_gated(shop)
    async with hosted(shop) as model:
        caplog.set_level(logging.INFO, "raincheck.audit")
        await all_five(model, "x" * 100_000)
        noted = [one for one in caplog.records if one.name == "raincheck.audit"]
        assert len(noted) == len(FIVE)
        assert all("x" * 201 not in str(vars(one)) for one in noted)


@BY_VERSIONS
async def test_who_has_lost_an_id_finds_their_own_latest_tasks_and_nobody_elses(version: str) -> None:
    shop = Shop(fallback_wait=0.1)
    add_gated(shop)
    add_gated(shop, "other")
    async with opened(shop, "http") as place:
        async with place.host(version, headers=ALICE) as alice, place.host(version, headers=BOB) as bob:
            first = handle_of(await alice.call("gated"))
            second = handle_of(await alice.call("other"))
            bobs = handle_of(await bob.call("gated"))
        async with place.host(version, headers=ALICE) as alice, place.host(version, headers=BOB) as bob:
            found = await alice.call("task_status")
            assert [one["task_id"] for one in found["structuredContent"]["tasks"]] == [second, first]
            assert first in told(found)
            assert second in told(found)
            assert bobs not in told(found)
            found = await alice.call("task_status", {"tool": "gated"})
            assert [one["task_id"] for one in found["structuredContent"]["tasks"]] == [first]
            assert [one["task_id"] for one in (await bob.call("task_status"))["structuredContent"]["tasks"]] == [bobs]
            nothing = await bob.call("task_status", {"tool": "other"})
            assert nothing["structuredContent"] == {"tasks": []}
            assert told(nothing) == "You have no tasks of other."
            assert not nothing.get("isError")


async def test_only_the_latest_are_told_of_and_shortly() -> None:
    shop = Shop(fallback_wait=0.1)

    @shop.tasks.tool
    async def build_a_large_report(task: TaskContext) -> None:
        await task.progress(1_234, 5_678, "going through all of the pages of the archive " * 10)
        await asyncio.Event().wait()

    async with hosted(shop) as model:
        ids = [handle_of(await model.call("build_a_large_report")) for _ in range(7)]
        found = await model.call("task_status")
        listed = [one["task_id"] for one in found["structuredContent"]["tasks"]]
        assert listed == ids[::-1][: len(listed)]
        assert 3 <= len(listed) <= 5
        assert len(told(found)) < LONGEST


@BY_VERSIONS
async def test_a_stranger_gets_at_a_task_by_its_id_alone_and_is_never_told_of_any(version: str) -> None:
    shop = Shop(fallback_wait=0.1)
    gate = add_gated(shop)
    async with opened(shop, "http") as place:
        async with place.host(version) as model:
            task_id = handle_of(await model.call("gated"))
            for arguments in ({}, {"tool": "gated"}, {"task_id": None}, {"task_id": ""}):
                refused = await model.call("task_status", arguments)
                assert refused["isError"] is True
                assert task_id not in str(refused)
                assert "task_id" in told(refused)
        async with place.host(version) as another:
            assert told(await another.call("task_status", {"task_id": task_id})).startswith("gated is still running")
            gate.open.set()
            assert told(await another.call("task_wait", {"task_id": task_id})) == "through"
            assert told(await another.call("task_result", {"task_id": task_id})) == "through"


@BY_VERSIONS
async def test_a_stranger_is_not_sent_to_look_for_a_list_that_it_does_not_get(version: str) -> None:
    shop = Shop(fallback_wait=0.1)
    add_gated(shop)
    async with hosted(shop, version, "http") as model:
        unknown = await model.call("task_wait", {"task_id": UNKNOWN})
        assert "task_status" not in told(unknown), told(unknown)


async def test_where_strangers_are_told_apart_by_their_sessions_an_id_means_nothing_in_another() -> None:
    shop = Shop(fallback_wait=0.1, anonymous="session")
    gate = add_gated(shop)
    async with opened(shop, "http") as place, place.host() as model, place.host() as another:
        task_id = handle_of(await model.call("gated"))
        theirs, nobodys = await all_five(another, task_id), await all_five(another, UNKNOWN)
        assert without_id(theirs, task_id) == without_id(nobodys, UNKNOWN)
        gate.open.set()
        assert told(await model.call("task_wait", {"task_id": task_id})) == "through"


@BY_VERSIONS
async def test_a_user_with_a_verified_token_comes_back_from_another_client(version: str) -> None:
    shop = make_with_tokens(fallback_wait=0.1)
    gate = add_gated(shop)
    async with opened(shop, "http") as place:
        async with place.host(version, headers={"authorization": "Bearer alice"}) as here:
            task_id = handle_of(await here.call("gated"))
        async with place.host(version, headers={"authorization": "Bearer alice-on-her-phone"}) as there:
            (found,) = (await there.call("task_status"))["structuredContent"]["tasks"]
            assert found["task_id"] == task_id
            gate.open.set()
            assert told(await there.call("task_wait", {"task_id": task_id})) == "through"
        async with place.host(version, headers={"authorization": "Bearer mallory"}) as mallory:
            assert (await mallory.call("task_status"))["structuredContent"]["tasks"] == []
            assert (await mallory.call("task_result", {"task_id": task_id}))["isError"] is True


ODD_IDS = [
    "x",
    "x" * 200,
    "x" * 201,
    "x" * 100_000,
    "a b",
    "a\nb",
    "\x00",
    "ü\U0001f4a5",
    "\u202eabc",
    "' OR 1=1 --",
    '"; DROP TABLE tasks; --',
    "%",
    "../../etc/passwd",
    "{task_id}",
    "<task_id>",
    "null",
]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else str(tmp_path / "tasks.db")


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
async def test_odd_ids_are_unknown_ones_and_what_is_said_of_them_is_short(version: str, store: str) -> None:
    shop = Shop(store, fallback_wait=0.1)
    add_gated(shop)
    async with hosted(shop, version) as model:
        await model.call("gated")
        for odd in ODD_IDS:
            for answer in await all_five(model, odd):
                assert answer["isError"] is True, odd
                assert len(told(answer)) < LONGEST
                assert told(answer).startswith("You have no task "), odd


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
@pytest.mark.parametrize("odd", [7, 1.5, True, [], ["x"], {}, {"task_id": "x"}], ids=repr)
async def test_ids_that_are_no_text_are_refused_in_words(odd: Any, version: str) -> None:
    shop = Shop(fallback_wait=0.1)
    add_gated(shop)
    async with hosted(shop, version) as model:
        for name, answer in zip(FIVE, await all_five(model, odd), strict=True):
            assert answer["isError"] is True
            assert told(answer).startswith(f"{name} can't be called like that: ")
            assert "is not of type 'string'" in told(answer)


@pytest.mark.parametrize("name", [one for one in FIVE if one != "task_status"])
@pytest.mark.parametrize("arguments", [None, {}, {"task_id": None}, {"task_id": ""}, {"id": "x"}], ids=repr)
async def test_an_id_that_is_missing_is_asked_for_in_words(arguments: dict[str, Any] | None, name: str) -> None:
    shop = Shop()
    add_gated(shop)
    async with hosted(shop) as model:
        params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        answer = await model.caller.request("tools/call", params)
        assert answer["isError"] is True
        assert told(answer) == f"{name} can't be called like that: 'task_id' is a required property"


async def test_what_a_model_gives_as_nothing_it_has_not_given() -> None:
    """Some fill in whatever there is to fill in."""
    shop = Shop(fallback_wait=0.1)
    add_gated(shop)
    async with hosted(shop) as model:
        task_id = handle_of(await model.call("gated"))
        for nothing in ({"task_id": "", "tool": ""}, {"task_id": None, "tool": None}, {"task_id": "", "tool": "gated"}):
            (found,) = (await model.call("task_status", nothing))["structuredContent"]["tasks"]
            assert found["task_id"] == task_id


async def test_an_id_that_was_copied_with_space_around_it_is_the_id() -> None:
    shop = Shop(fallback_wait=0.1)
    gate = add_gated(shop)
    async with hosted(shop) as model:
        task_id = handle_of(await model.call("gated"))
        gate.open.set()
        assert told(await model.call("task_wait", {"task_id": f" {task_id}\n"})) == "through"


@pytest.mark.parametrize(
    "tool", ["x" * 100_000, "no such tool", "'; --", "\x00", "ü\U0001f4a5"], ids=lambda one: one[:20]
)
async def test_tasks_of_an_odd_tool_are_none_and_what_is_said_of_it_is_short(tool: str, store: str) -> None:
    shop = Shop(store, fallback_wait=0.1)
    add_gated(shop)
    async with hosted(shop) as model:
        await model.call("gated")
        answer = await model.call("task_status", {"tool": tool})
        assert len(told(answer)) < LONGEST
        assert answer.get("isError") or answer["structuredContent"] == {"tasks": []}


async def test_what_a_server_says_of_its_callers_counts() -> None:
    def owner(_: object) -> Owner:
        return Owner.token("https://a.example", people[0])

    people = ["alice"]
    shop = Shop(fallback_wait=0.1, owner=owner)
    add_gated(shop)
    async with hosted(shop) as model:
        task_id = handle_of(await model.call("gated"))
        people[0] = "bob"
        assert (await model.call("task_status"))["structuredContent"] == {"tasks": []}
        assert (await model.call("task_cancel", {"task_id": task_id}))["isError"] is True
        people[0] = "alice"
        (found,) = (await model.call("task_status"))["structuredContent"]["tasks"]
        assert found["status"] == "working"
