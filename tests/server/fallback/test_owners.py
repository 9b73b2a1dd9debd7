"""Owners of fallback tasks: an id gives other owners no access, and no text reveals a task."""

# pyright: reportUnusedFunction=false

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from raincheck import Owner, RetryPolicy, TaskContext
from tests.server.test_owners import make_with_tokens
from tests.support.server.example import ExampleServer
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    FALLBACK_TOOL_NAMES,
    MAX_TEXT_LENGTH,
    MODERN,
    Model,
    connected_host,
    hosted_server,
    model_text,
    task_id_of,
)
from tests.support.server.tools import add_gated, add_greeting
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import ALICE, BOB

pytestmark = pytest.mark.anyio

UNKNOWN = "0" * 44


async def call_all_fallback_tools(model: Model, task_id: Any, **more: Any) -> list[Message]:
    """The answers of all fallback tools for an id."""
    answers = [
        await model.call(name, {"task_id": task_id, **more}) for name in FALLBACK_TOOL_NAMES if name != "task_answer"
    ]
    return [*answers, await model.call("task_answer", {"task_id": task_id, "answer": {"name": "Eve"}, **more})]


def without_id(answers: list[Message], task_id: str) -> str:
    return str(answers).replace(task_id, "THE-ID")


@BY_VERSIONS
@pytest.mark.parametrize("state", ["working", "asking", "completed", "failed", "cancelled"])
async def test_another_owners_task_looks_exactly_like_an_unknown_one_in_all_fallback_tools(
    state: str, version: str
) -> None:
    server = ExampleServer(fallback_wait=0.1)
    received = add_greeting(server, "ask")
    gate = add_gated(server, "work")

    may_fail = asyncio.Event()

    @server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def break_down() -> str:
        await may_fail.wait()
        raise ValueError("secret")

    tool = {"asking": "ask", "failed": "break_down"}.get(state, "work")
    async with hosted_server(server, "http") as hosts, hosts.host(version, headers=ALICE) as alice:
        task_id = task_id_of(await alice.call(tool))
        if state == "completed":
            gate.open.set()
            await alice.call("task_wait", {"task_id": task_id})
        elif state == "cancelled":
            await alice.call("task_cancel", {"task_id": task_id})
        elif state == "failed":
            may_fail.set()
            while (await alice.call("task_status", {"task_id": task_id}))["structuredContent"]["status"] == "working":
                await alice.call("task_wait", {"task_id": task_id})
        before = await alice.call("task_status", {"task_id": task_id})
        for other in (BOB, {}):
            async with hosts.host(version, headers=other) as bob:
                theirs, nobodys = (
                    await call_all_fallback_tools(bob, task_id),
                    await call_all_fallback_tools(bob, UNKNOWN),
                )
                assert without_id(theirs, task_id) == without_id(nobodys, UNKNOWN)
                assert {model_text(one) for one in nobodys} == {model_text(nobodys[0])}
                assert all(one["isError"] for one in nobodys)
                assert not any("structuredContent" in one for one in nobodys)
        after = await alice.call("task_status", {"task_id": task_id})
        assert after["structuredContent"]["status"] == before["structuredContent"]["status"]
    assert received == []


async def test_requests_for_another_owners_task_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    server = ExampleServer(fallback_wait=0.1)
    add_gated(server)
    async with (
        hosted_server(server, "http") as hosts,
        hosts.host(headers=ALICE) as alice,
        hosts.host(headers=BOB) as bob,
    ):
        task_id = task_id_of(await alice.call("gated"))
        caplog.set_level(logging.INFO, "raincheck.audit")
        caplog.clear()
        await call_all_fallback_tools(bob, task_id)
        assert len([one for one in caplog.records if one.name == "raincheck.audit"]) == len(FALLBACK_TOOL_NAMES)


async def test_an_id_that_is_far_too_long_is_noted_shortly(caplog: pytest.LogCaptureFixture) -> None:
    server = ExampleServer()
    add_gated(server)
    async with connected_host(server) as model:
        caplog.set_level(logging.INFO, "raincheck.audit")
        await call_all_fallback_tools(model, "x" * 100_000)
        noted = [one for one in caplog.records if one.name == "raincheck.audit"]
        assert len(noted) == len(FALLBACK_TOOL_NAMES)
        assert all("x" * 201 not in str(vars(one)) for one in noted)


@BY_VERSIONS
async def test_a_caller_that_lost_an_id_finds_only_its_own_latest_tasks(version: str) -> None:
    server = ExampleServer(fallback_wait=0.1)
    add_gated(server)
    add_gated(server, "other")
    async with hosted_server(server, "http") as hosts:
        async with hosts.host(version, headers=ALICE) as alice, hosts.host(version, headers=BOB) as bob:
            first = task_id_of(await alice.call("gated"))
            second = task_id_of(await alice.call("other"))
            bobs = task_id_of(await bob.call("gated"))
        async with hosts.host(version, headers=ALICE) as alice, hosts.host(version, headers=BOB) as bob:
            found = await alice.call("task_status")
            assert [one["task_id"] for one in found["structuredContent"]["tasks"]] == [second, first]
            assert first in model_text(found)
            assert second in model_text(found)
            assert bobs not in model_text(found)
            found = await alice.call("task_status", {"tool": "gated"})
            assert [one["task_id"] for one in found["structuredContent"]["tasks"]] == [first]
            assert [one["task_id"] for one in (await bob.call("task_status"))["structuredContent"]["tasks"]] == [bobs]
            nothing = await bob.call("task_status", {"tool": "other"})
            assert nothing["structuredContent"] == {"tasks": []}
            assert model_text(nothing) == "You have no tasks of other."
            assert not nothing.get("isError")


async def test_only_the_latest_tasks_are_listed_and_briefly() -> None:
    server = ExampleServer(fallback_wait=0.1)

    @server.tasks.tool
    async def build_a_large_report(task: TaskContext) -> None:
        await task.progress(1_234, 5_678, "going through all of the pages of the archive " * 10)
        await asyncio.Event().wait()

    async with connected_host(server) as model:
        ids = [task_id_of(await model.call("build_a_large_report")) for _ in range(7)]
        found = await model.call("task_status")
        listed = [one["task_id"] for one in found["structuredContent"]["tasks"]]
        assert listed == ids[::-1][: len(listed)]
        assert 3 <= len(listed) <= 5
        assert len(model_text(found)) < MAX_TEXT_LENGTH


@BY_VERSIONS
async def test_an_anonymous_caller_reaches_a_task_only_by_its_id_and_can_not_list_tasks(version: str) -> None:
    server = ExampleServer(fallback_wait=0.1)
    gate = add_gated(server)
    async with hosted_server(server, "http") as hosts:
        async with hosts.host(version) as model:
            task_id = task_id_of(await model.call("gated"))
            for arguments in ({}, {"tool": "gated"}, {"task_id": None}, {"task_id": ""}):
                refused = await model.call("task_status", arguments)
                assert refused["isError"] is True
                assert task_id not in str(refused)
                assert "task_id" in model_text(refused)
        async with hosts.host(version) as another:
            assert model_text(await another.call("task_status", {"task_id": task_id})).startswith(
                "gated is still running"
            )
            gate.open.set()
            assert model_text(await another.call("task_wait", {"task_id": task_id})) == "through"
            assert model_text(await another.call("task_result", {"task_id": task_id})) == "through"


@BY_VERSIONS
async def test_a_stranger_is_not_sent_to_look_for_a_list_that_it_does_not_get(version: str) -> None:
    server = ExampleServer(fallback_wait=0.1)
    add_gated(server)
    async with connected_host(server, version, "http") as model:
        unknown = await model.call("task_wait", {"task_id": UNKNOWN})
        assert "task_status" not in model_text(unknown), model_text(unknown)


async def test_with_anonymous_sessions_a_task_id_is_unknown_in_another_session() -> None:
    server = ExampleServer(fallback_wait=0.1, anonymous="session")
    gate = add_gated(server)
    async with hosted_server(server, "http") as hosts, hosts.host() as model, hosts.host() as another:
        task_id = task_id_of(await model.call("gated"))
        theirs, nobodys = (
            await call_all_fallback_tools(another, task_id),
            await call_all_fallback_tools(another, UNKNOWN),
        )
        assert without_id(theirs, task_id) == without_id(nobodys, UNKNOWN)
        gate.open.set()
        assert model_text(await model.call("task_wait", {"task_id": task_id})) == "through"


@BY_VERSIONS
async def test_a_user_with_a_verified_token_continues_from_another_client(version: str) -> None:
    server = make_with_tokens(fallback_wait=0.1)
    gate = add_gated(server)
    async with hosted_server(server, "http") as hosts:
        async with hosts.host(version, headers={"authorization": "Bearer alice"}) as here:
            task_id = task_id_of(await here.call("gated"))
        async with hosts.host(version, headers={"authorization": "Bearer alice-on-her-phone"}) as there:
            (found,) = (await there.call("task_status"))["structuredContent"]["tasks"]
            assert found["task_id"] == task_id
            gate.open.set()
            assert model_text(await there.call("task_wait", {"task_id": task_id})) == "through"
        async with hosts.host(version, headers={"authorization": "Bearer mallory"}) as mallory:
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
async def test_odd_ids_are_unknown_tasks_and_their_errors_are_short(version: str, store: str) -> None:
    server = ExampleServer(store, fallback_wait=0.1)
    add_gated(server)
    async with connected_host(server, version) as model:
        await model.call("gated")
        for odd in ODD_IDS:
            for answer in await call_all_fallback_tools(model, odd):
                assert answer["isError"] is True, odd
                assert len(model_text(answer)) < MAX_TEXT_LENGTH
                assert model_text(answer).startswith("You have no task "), odd


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
@pytest.mark.parametrize("odd", [7, 1.5, True, [], ["x"], {}, {"task_id": "x"}], ids=repr)
async def test_ids_that_are_not_strings_are_rejected_with_a_reason(odd: Any, version: str) -> None:
    server = ExampleServer(fallback_wait=0.1)
    add_gated(server)
    async with connected_host(server, version) as model:
        for name, answer in zip(FALLBACK_TOOL_NAMES, await call_all_fallback_tools(model, odd), strict=True):
            assert answer["isError"] is True
            assert model_text(answer).startswith(f"invalid arguments for {name}: ")
            assert "is not of type 'string'" in model_text(answer)


@pytest.mark.parametrize("name", [one for one in FALLBACK_TOOL_NAMES if one != "task_status"])
@pytest.mark.parametrize("arguments", [None, {}, {"task_id": None}, {"task_id": ""}, {"id": "x"}], ids=repr)
async def test_a_missing_id_is_rejected_with_a_reason(arguments: dict[str, Any] | None, name: str) -> None:
    server = ExampleServer()
    add_gated(server)
    async with connected_host(server) as model:
        params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        answer = await model.caller.request("tools/call", params)
        assert answer["isError"] is True
        assert model_text(answer) == f"invalid arguments for {name}: 'task_id' is a required property"


async def test_empty_arguments_count_as_absent() -> None:
    """Some models fill in every argument."""
    server = ExampleServer(fallback_wait=0.1)
    add_gated(server)
    async with connected_host(server) as model:
        task_id = task_id_of(await model.call("gated"))
        for nothing in ({"task_id": "", "tool": ""}, {"task_id": None, "tool": None}, {"task_id": "", "tool": "gated"}):
            (found,) = (await model.call("task_status", nothing))["structuredContent"]["tasks"]
            assert found["task_id"] == task_id


async def test_whitespace_around_an_id_is_ignored() -> None:
    server = ExampleServer(fallback_wait=0.1)
    gate = add_gated(server)
    async with connected_host(server) as model:
        task_id = task_id_of(await model.call("gated"))
        gate.open.set()
        assert model_text(await model.call("task_wait", {"task_id": f" {task_id}\n"})) == "through"


@pytest.mark.parametrize(
    "tool", ["x" * 100_000, "no such tool", "'; --", "\x00", "ü\U0001f4a5"], ids=lambda one: one[:20]
)
async def test_an_odd_tool_filter_matches_no_tasks_and_its_answer_is_short(tool: str, store: str) -> None:
    server = ExampleServer(store, fallback_wait=0.1)
    add_gated(server)
    async with connected_host(server) as model:
        await model.call("gated")
        answer = await model.call("task_status", {"tool": tool})
        assert len(model_text(answer)) < MAX_TEXT_LENGTH
        assert answer.get("isError") or answer["structuredContent"] == {"tasks": []}


async def test_the_owner_that_a_server_determines_decides_which_tasks_are_visible() -> None:
    def owner(_: object) -> Owner:
        return Owner.token("https://a.example", people[0])

    people = ["alice"]
    server = ExampleServer(fallback_wait=0.1, owner=owner)
    add_gated(server)
    async with connected_host(server) as model:
        task_id = task_id_of(await model.call("gated"))
        people[0] = "bob"
        assert (await model.call("task_status"))["structuredContent"] == {"tasks": []}
        assert (await model.call("task_cancel", {"task_id": task_id}))["isError"] is True
        people[0] = "alice"
        (found,) = (await model.call("task_status"))["structuredContent"]["tasks"]
        assert found["status"] == "working"
