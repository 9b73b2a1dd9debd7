"""Requests that make no sense, or are about tasks that are not there: all alike, in words, and without harm."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from raincheck import Retention
from raincheck.testing import FakeClock
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import Shop
from tests.support.server.tools import ON_BOTH_WIRES, YES, add_gated, add_greeting, refusal, run_sql, somebody_else
from tests.support.server.transports import HttpWire

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
NOT_IDS: list[Any] = [None, 7, 1.5, True, [], ["a"], {}, {"taskId": "a"}]
ODD_IDS = ["", " ", "unknown", "x" * 5_000, "'; DROP TABLE tasks; --", "../../etc/passwd", "\0", "\n", "ä€😀", "\ud800"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("standard-errors", "informative-messages")
async def test_a_request_without_an_id_is_told_that_it_needs_one(method: str) -> None:
    async with Shop().open() as caller:
        refused = await refusal(caller, method, {"inputResponses": {}})
        assert refused.code == -32602
        assert method in refused.message
        assert "taskId" in refused.message


@ON_BOTH_WIRES
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("standard-errors", "informative-messages")
async def test_an_id_that_is_no_text_is_refused(method: str, way: str) -> None:
    async with Shop().open_by(way) as caller:
        for wrong in NOT_IDS:
            refused = await refusal(caller, method, {"taskId": wrong, "inputResponses": {}})
            assert refused.code == -32602, wrong
            assert "taskId" in refused.message
            if isinstance(caller.wire, HttpWire):
                assert caller.wire.last_status == 400


@pytest.mark.parametrize("store", ["memory:", "tasks.db"])
@pytest.mark.parametrize("task_id", ODD_IDS)
@pytest.mark.requirement("get-unknown-id", "update-unknown-id", "cancel-unknown-id", "update-cancel-unknown-id-code")
async def test_an_unknown_id_is_told_alike_by_every_method(task_id: str, store: str, tmp_path: Path) -> None:
    shop = Shop(store if store == "memory:" else tmp_path / store)
    add_gated(shop)
    async with shop.open() as caller:
        messages: set[str] = set()
        for method in METHODS:
            refused = await refusal(caller, method, {"taskId": task_id, "inputResponses": {"elicit-0": YES}})
            assert (refused.code, refused.data) == (-32602, None)
            messages.add(refused.message)
        (message,) = messages
        assert "not found" in message
        assert len(message) < 500


@pytest.mark.requirement("get-unknown-id", "update-unknown-id", "cancel-unknown-id", "update-cancel-unknown-id-code")
async def test_over_http_an_unknown_id_is_a_bad_request() -> None:
    async with Shop().open_http() as caller:
        assert isinstance(caller.wire, HttpWire)
        for method in METHODS:
            refused = await refusal(caller, method, {"taskId": "unknown", "inputResponses": {}})
            assert (refused.code, caller.wire.last_status) == (-32602, 400)


@pytest.mark.requirement("access-checked-each-time", "get-unknown-id")
async def test_unknown_expired_and_somebody_elses_tasks_can_not_be_told_apart() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)
    gate = add_gated(shop, retention=Retention(keep=timedelta(seconds=10)))
    async with shop.open_http(headers={"authorization": "Bearer of mine"}) as caller:
        expired = await caller.start("gated")
        gate.open.set()
        await caller.result(expired)
        clock.advance(11)
        other = somebody_else(caller)
        theirs, theirs_ended = await other.start("gated"), await other.start("gated")
        for one in (theirs, theirs_ended):
            await other.result(one)
        waiting = await other.start("gated")
        ids = [expired, theirs, theirs_ended, waiting, expired[:-1] + "0", "nothing"]
        for method in METHODS:
            assert len({await told_of(caller, method, task_id) for task_id in ids}) == 1


async def told_of(caller: Caller, method: str, task_id: str) -> tuple[int, str, Any]:
    """What is told of a task, but for its id."""
    refused = await refusal(caller, method, {"taskId": task_id, "inputResponses": {"elicit-0": YES}})
    assert refused.message.count(task_id) <= 1
    return refused.code, refused.message.replace(task_id, "…"), refused.data


@pytest.mark.requirement("access-checked-each-time")
async def test_nobody_else_can_answer_or_cancel_a_task() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with shop.open_http(headers={"authorization": "Bearer of mine"}) as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        other = somebody_else(caller)
        nobody = Caller(caller.wire)
        for stranger in (other, nobody):
            for method in METHODS:
                params = {"taskId": task_id, "inputResponses": {"elicit-0": YES}}
                assert (await refusal(stranger, method, params)).code == -32602
        assert (await caller.get(task_id))["status"] == "input_required"
        assert heard == []
        await caller.update(task_id, {"elicit-0": YES})
        await caller.result(task_id)


@pytest.mark.parametrize("wrong", ["missing", None, [], "yes", 7, True])
@pytest.mark.requirement("standard-errors", "informative-messages")
async def test_answers_that_are_no_object_are_refused(wrong: Any) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with shop.open() as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        params: dict[str, Any] = {"taskId": task_id}
        if wrong != "missing":
            params["inputResponses"] = wrong
        refused = await refusal(caller, "tasks/update", params)
        assert refused.code == -32602
        assert "inputResponses" in refused.message
        assert (await caller.get(task_id))["status"] == "input_required"
        assert heard == []


@pytest.mark.parametrize("method", METHODS)
async def test_what_else_a_request_says_is_ignored(method: str) -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        more = {"inputResponses": {}, "cursor": 7, "task": {"ttl": 1}, "requestState": "x", "task_id": "other"}
        await caller.request(method, {"taskId": task_id, **more})


async def test_an_answer_that_is_too_large_is_refused_in_words_and_the_question_stays_open() -> None:
    shop = Shop()
    add_greeting(shop)
    async with shop.open() as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        huge = {"action": "accept", "content": {"name": "x" * 1_000_000}}
        refused = await refusal(caller, "tasks/update", {"taskId": task_id, "inputResponses": {"elicit-0": huge}})
        assert refused.code == -32602
        assert "answer" in refused.message
        assert len(refused.message) < 1_000
        assert (await caller.get(task_id))["status"] == "input_required"


async def test_what_is_too_large_is_no_matter_where_it_answers_nothing() -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        await caller.update(task_id, {"elicit-0": {"action": "accept", "content": {"name": "x" * 1_000_000}}})
        assert (await caller.get(task_id))["status"] == "working"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("standard-errors")
async def test_a_store_that_is_broken_is_an_internal_error_that_says_nothing_of_it(method: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    shop = Shop(file, works=False)
    add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        await asyncio.to_thread(run_sql, file, "ALTER TABLE tasks RENAME TO gone")
        refused = await refusal(caller, method, {"taskId": task_id, "inputResponses": {"elicit-0": YES}})
        await asyncio.to_thread(run_sql, file, "ALTER TABLE gone RENAME TO tasks")
        assert refused.code == -32603
        assert "try again later" in refused.message
        assert "table" not in f"{refused.message} {refused.data}"
        assert (await caller.get(task_id))["status"] == "working"
