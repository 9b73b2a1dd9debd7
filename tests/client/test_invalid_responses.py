"""Tests for invalid server responses: each raises a clear error, and an odd field does not lose the task."""

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck.client import InvalidResponse, TaskCancelled, TaskProgress
from raincheck.core.lifecycle import Status
from raincheck.errors import TaskNotFound
from tests.support.client.callers import User, text_of
from tests.support.client.fake_servers import DONE, WORKING, FakeServer
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])


NO_TASKS: list[Any] = [{}, {"taskId": ""}, {"taskId": 7}, {"taskId": None}, {"taskId": ["t"]}]


@pytest.mark.parametrize("created", NO_TASKS)
async def test_a_task_without_an_id_is_an_invalid_response(created: dict[str, Any]) -> None:
    older, newer = FakeServer("2025-11-25"), FakeServer()
    newer.set_responses("tools/call", {"resultType": "task", "status": "working", **created})
    for task in (created, "nothing"):
        older.set_responses("tools/call", {"task": task})
        for fake in (older, newer):
            async with fake.client() as client:
                with pytest.raises(InvalidResponse, match="ill-formed"):
                    await client.call("work")


@pytest.mark.parametrize(
    "odd",
    [
        {"status": "brewing"},
        {"status": 7},
        {"status": ["working"]},
        {"status": None},
        {"statusMessage": 7},
        {"pollInterval": "soon", "pollIntervalMs": "soon"},
        {"ttl": -1.5, "ttlMs": "forever", "createdAt": None, "lastUpdatedAt": 7},
    ],
)
@BOTH
async def test_an_odd_field_does_not_lose_the_task(version: str, odd: dict[str, Any]) -> None:
    fake, task = FakeServer(version), {**WORKING, **odd}
    fake.set_responses("tools/call", {"task": task} if version == "2025-11-25" else {"resultType": "task", **task})
    later = {name: value for name, value in odd.items() if name != "status"}
    fake.complete_after({**WORKING, **later})
    async with fake.client(clock=SkippingClock()) as client:
        assert text_of(await client.call_tool("work")) == "done"


@pytest.mark.parametrize(
    "shown", [{}, {"status": None}, {"status": "done"}, {"status": 7}, {"taskId": "u", "status": "working"}]
)
@BOTH
async def test_an_ill_formed_task_is_an_invalid_response(version: str, shown: dict[str, Any]) -> None:
    fake = FakeServer(version)
    fake.set_tasks(shown)
    async with fake.client() as client:
        handle = await client.call("work")
        with pytest.raises(InvalidResponse, match=r"ill-formed|returned task 'u'"):
            await handle.result()
        fake.complete_after()
        assert text_of(await handle.result()) == "done"


@pytest.mark.parametrize("asked", [{}, {"q": {}}, {"q": {"method": "make/coffee"}}, {"q": {"method": 7}}])
async def test_a_question_that_can_not_be_asked_is_left_to_the_handle(asked: dict[str, Any]) -> None:
    fake = FakeServer()
    fake.set_tasks({"status": "input_required", "inputRequests": asked})
    async with fake.client(clock=SkippingClock(), elicitation_callback=User().answer) as client:
        handle = await client.call("work")
        with pytest.raises(Exception, match=r"waits for input \(q" if asked else ".*"):
            await handle.result(timeout=60)


async def test_a_question_without_a_message_is_an_invalid_response() -> None:
    fake = FakeServer()
    fake.set_tasks({"status": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": 7}}})
    async with fake.client(clock=SkippingClock(), elicitation_callback=User().answer) as client:
        with pytest.raises(InvalidResponse, match="'q' is ill-formed"):
            await client.call_tool("work")


@pytest.mark.parametrize("result", [None, {}, {"content": 7}, {"content": [{"type": "smell"}]}])
@BOTH
async def test_an_ill_formed_result_is_an_invalid_response(version: str, result: Any) -> None:
    fake = FakeServer(version)
    fake.set_tasks({"status": "completed", **({} if result is None else {"result": result})})
    fake.set_responses("tasks/result", result or {})
    async with fake.client() as client:
        with pytest.raises(InvalidResponse, match=r"ill-formed|sent no result"):
            await client.call_tool("work")


async def test_a_failure_without_details_is_still_reported_as_a_failure() -> None:
    older, newer = FakeServer("2025-11-25"), FakeServer()
    older.set_tasks({"status": "failed", "statusMessage": "it broke"})
    older.set_responses("tasks/result", {"_meta": {}})
    async with older.client() as client:
        with pytest.raises(MCPError, match="it broke"):
            await client.call_tool("work")
    newer.set_tasks({"status": "failed"})
    async with newer.client() as client:
        with pytest.raises(InvalidResponse, match="sent no result"):
            await client.call_tool("work")
    newer.set_tasks({"status": "cancelled"})
    async with newer.client() as client:
        with pytest.raises(TaskCancelled):
            await client.call_tool("work")


@pytest.mark.parametrize("content", [{}, {"structuredContent": {"sum": "three"}}, {"structuredContent": None}])
@BOTH
async def test_a_result_that_violates_the_output_schema_is_an_invalid_response(
    version: str, content: dict[str, Any]
) -> None:
    promised = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    fake, result = FakeServer(version, tool={"outputSchema": promised}), {**DONE, **content}
    fake.set_tasks({"status": "completed", "result": {**result, "resultType": "complete"}})
    fake.set_responses("tasks/result", result)
    async with fake.client() as client:
        handle = await client.call("work")
        with pytest.raises(InvalidResponse, match=r"structured content"):
            await handle.result()
        # One that is answered at once is checked too.
        fake.set_responses("tools/call", {**result, "resultType": "complete"})
        with pytest.raises(InvalidResponse, match=r"structured content"):
            await client.call("work")


async def test_invalid_progress_is_ignored() -> None:
    for reported in (7, {}, {"done": "half"}, {"done": True}, {"done": float("nan")}):
        fake = FakeServer()
        fake.set_tasks({**WORKING, "_meta": {"raincheck/progress": reported}})
        async with fake.client() as client:
            update = await (await client.call("work")).poll()
            assert update is not None
            assert update.progress is None
    fake = FakeServer()
    fake.set_tasks({**WORKING, "_meta": {"raincheck/progress": {"done": 1, "total": "many"}}})
    async with fake.client() as client:
        update = await (await client.call("work")).poll()
        assert update is not None
        assert update.progress == TaskProgress(1)


async def test_a_fallback_text_without_tools_is_an_ordinary_result() -> None:
    fake = FakeServer("2025-06-18")
    tools: dict[str, str] = {}
    for meta in ({"raincheck/task": "t"}, {"raincheck/task": 7, "raincheck/tools": tools}, {"raincheck/tools": tools}):
        fake.set_responses("tools/call", {**DONE, "_meta": meta})
        async with fake.client() as client:
            assert (await client.call("work")).task_id is None


@pytest.mark.parametrize(
    "reported",
    [None, {}, {"task_id": "t"}, {"task_id": "t", "status": "brewing"}, {"task_id": "u", "status": "working"}],
)
async def test_an_ill_formed_fallback_status_is_an_invalid_response(reported: dict[str, Any] | None) -> None:
    fake = FakeServer("2025-06-18")
    tools = {"status": "status", "wait": "wait", "result": "result"}
    fake.set_responses(
        "tools/call",
        {**DONE, "_meta": {"raincheck/task": "t", "raincheck/tools": tools}},
        {**DONE, **({} if reported is None else {"structuredContent": reported})},
    )
    async with fake.client(clock=SkippingClock()) as client:
        handle = await client.call("work")
        assert handle.task_id == "t"
        with pytest.raises(InvalidResponse, match=r"ill-formed|returned task 'u'"):
            await handle.result()
        with pytest.raises(TaskNotFound):
            await handle.cancel()


async def test_an_update_of_a_working_task_has_no_outcome() -> None:
    fake = FakeServer()
    fake.set_tasks(WORKING)
    async with fake.client() as client:
        update = await (await client.call("work")).poll()
        assert update is not None
        assert (update.status, update.is_ended, update.result, update.error) == (Status.WORKING, False, None, None)
