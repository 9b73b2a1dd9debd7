"""Invalid requests, and requests for unknown tasks, get clear errors that reveal nothing."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from raincheck import Retention
from raincheck.testing import FakeClock
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import ON_BOTH_TRANSPORTS, YES, add_gated, add_greeting, other_owner, refusal, run_sql
from tests.support.server.transports import HttpTransport

pytestmark = pytest.mark.anyio

METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
NOT_IDS: list[Any] = [None, 7, 1.5, True, [], ["a"], {}, {"taskId": "a"}]
ODD_IDS = ["", " ", "unknown", "x" * 5_000, "'; DROP TABLE tasks; --", "../../etc/passwd", "\0", "\n", "ä€😀", "\ud800"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("standard-errors", "informative-messages")
async def test_a_request_without_a_task_id_is_refused(method: str) -> None:
    async with ExampleServer().open() as caller:
        refused = await refusal(caller, method, {"inputResponses": {}})
        assert refused.code == -32602
        assert method in refused.message
        assert "taskId" in refused.message


@ON_BOTH_TRANSPORTS
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("standard-errors", "informative-messages")
async def test_a_task_id_that_is_no_string_is_refused(method: str, way: str) -> None:
    async with ExampleServer().open_by(way) as caller:
        for wrong in NOT_IDS:
            refused = await refusal(caller, method, {"taskId": wrong, "inputResponses": {}})
            assert refused.code == -32602, wrong
            assert "taskId" in refused.message
            if isinstance(caller.transport, HttpTransport):
                assert caller.transport.last_status == 400


@pytest.mark.parametrize("store", ["memory:", "tasks.db"])
@pytest.mark.parametrize("task_id", ODD_IDS)
@pytest.mark.requirement("get-unknown-id", "update-unknown-id", "cancel-unknown-id", "update-cancel-unknown-id-code")
async def test_an_unknown_id_gets_the_same_error_from_every_method(task_id: str, store: str, tmp_path: Path) -> None:
    server = ExampleServer(store if store == "memory:" else tmp_path / store)
    add_gated(server)
    async with server.open() as caller:
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
    async with ExampleServer().open_http() as caller:
        assert isinstance(caller.transport, HttpTransport)
        for method in METHODS:
            refused = await refusal(caller, method, {"taskId": "unknown", "inputResponses": {}})
            assert (refused.code, caller.transport.last_status) == (-32602, 400)


@pytest.mark.requirement("access-checked-each-time", "get-unknown-id")
async def test_unknown_expired_and_other_owners_tasks_are_indistinguishable() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    gate = add_gated(server, retention=Retention(keep=timedelta(seconds=10)))
    async with server.open_http(headers={"authorization": "Bearer of mine"}) as caller:
        expired = await caller.start("gated")
        gate.open.set()
        await caller.result(expired)
        clock.advance(11)
        other = other_owner(caller)
        other_task, other_ended = await other.start("gated"), await other.start("gated")
        for one in (other_task, other_ended):
            await other.result(one)
        waiting = await other.start("gated")
        ids = [expired, other_task, other_ended, waiting, expired[:-1] + "0", "nothing"]
        for method in METHODS:
            assert len({await told_of(caller, method, task_id) for task_id in ids}) == 1


async def told_of(caller: Caller, method: str, task_id: str) -> tuple[int, str, Any]:
    """Return the error for a task, without its id."""
    refused = await refusal(caller, method, {"taskId": task_id, "inputResponses": {"elicit-0": YES}})
    assert refused.message.count(task_id) <= 1
    return refused.code, refused.message.replace(task_id, "…"), refused.data


@pytest.mark.requirement("access-checked-each-time")
async def test_another_owner_can_not_answer_or_cancel_a_task() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open_http(headers={"authorization": "Bearer of mine"}) as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        other = other_owner(caller)
        nobody = Caller(caller.transport)
        for stranger in (other, nobody):
            for method in METHODS:
                params = {"taskId": task_id, "inputResponses": {"elicit-0": YES}}
                assert (await refusal(stranger, method, params)).code == -32602
        assert (await caller.get(task_id))["status"] == "input_required"
        assert received == []
        await caller.update(task_id, {"elicit-0": YES})
        await caller.result(task_id)


@pytest.mark.parametrize("wrong", ["missing", None, [], "yes", 7, True])
@pytest.mark.requirement("standard-errors", "informative-messages")
async def test_answers_that_are_no_object_are_refused(wrong: Any) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open() as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        params: dict[str, Any] = {"taskId": task_id}
        if wrong != "missing":
            params["inputResponses"] = wrong
        refused = await refusal(caller, "tasks/update", params)
        assert refused.code == -32602
        assert "inputResponses" in refused.message
        assert (await caller.get(task_id))["status"] == "input_required"
        assert received == []


@pytest.mark.parametrize("method", METHODS)
async def test_unknown_fields_of_a_request_are_ignored(method: str) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        more = {"inputResponses": {}, "cursor": 7, "task": {"ttl": 1}, "requestState": "x", "task_id": "other"}
        await caller.request(method, {"taskId": task_id, **more})


async def test_an_answer_that_is_too_large_gets_an_error_and_the_question_stays_open() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with server.open() as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        huge = {"action": "accept", "content": {"name": "x" * 1_000_000}}
        refused = await refusal(caller, "tasks/update", {"taskId": task_id, "inputResponses": {"elicit-0": huge}})
        assert refused.code == -32602
        assert "answer" in refused.message
        assert len(refused.message) < 1_000
        assert (await caller.get(task_id))["status"] == "input_required"


async def test_an_unknown_answer_that_is_too_large_is_ignored() -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        await caller.update(task_id, {"elicit-0": {"action": "accept", "content": {"name": "x" * 1_000_000}}})
        assert (await caller.get(task_id))["status"] == "working"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("standard-errors")
async def test_a_broken_store_is_an_internal_error_that_does_not_reveal_it(method: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    server = ExampleServer(file, works=False)
    add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        await asyncio.to_thread(run_sql, file, "ALTER TABLE tasks RENAME TO gone")
        refused = await refusal(caller, method, {"taskId": task_id, "inputResponses": {"elicit-0": YES}})
        await asyncio.to_thread(run_sql, file, "ALTER TABLE gone RENAME TO tasks")
        assert refused.code == -32603
        assert "try again later" in refused.message
        assert "table" not in f"{refused.message} {refused.data}"
        assert (await caller.get(task_id))["status"] == "working"
