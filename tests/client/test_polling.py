"""Tests for polling and calls at the edges: nothing is done twice, lost, or given up too soon."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, ElicitResult

from raincheck.client import SavedCalls
from tests.support.client.fake_servers import DONE, FakeServer, NeverResponds, ServerDied

QUESTION: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
}


async def accept(*_: object) -> ElicitResult:
    return ElicitResult(action="accept", content={})


@pytest.mark.parametrize("support", ["optional", "forbidden"])
async def test_a_tool_that_raises_method_not_found_itself_is_called_once(support: str) -> None:
    server = FakeServer("2025-11-25")
    server.set_responses(
        "tools/list",
        {"tools": [{"name": "work", "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}]},
    )
    server.set_responses(
        "tools/call", {"task": {"taskId": "t", "status": "working"}} if support == "optional" else DONE
    )
    server.set_tasks({"status": "completed"})
    async with server.client() as client:
        await client.call_tool("work")
        server.set_responses("tools/call", MCPError(METHOD_NOT_FOUND, "upstream has no such method"))
        with pytest.raises(MCPError, match="upstream"):
            await client.call_tool("work")
    assert server.count_requests("tools/call") == 2


async def test_a_tool_that_no_longer_supports_tasks_is_called_without_one() -> None:
    server = FakeServer("2025-11-25")
    server.set_tasks({"status": "completed"})
    async with server.client() as client:
        await client.call_tool("work")
        server.set_responses("tools/list", {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})
        server.set_responses("tools/call", MCPError(METHOD_NOT_FOUND, "not as a task"), DONE)
        assert (await client.call_tool("work")).content
    assert "task" not in server.asked[-1][1]


async def test_a_saved_call_stays_while_its_result_can_still_be_fetched(tmp_path: Path) -> None:
    saved_calls = SavedCalls(tmp_path / "calls.book")
    server = FakeServer("2025-11-25")
    server.set_tasks({"status": "completed"})
    server.set_responses("tasks/result", MCPError(INTERNAL_ERROR, "the store is busy"), DONE)
    async with server.client(saved_calls=saved_calls) as client:
        handle = await client.call("work")
        with pytest.raises(MCPError, match="busy"):
            await handle.result()
        assert [task_ref.task_id for task_ref in await saved_calls.list_refs()] == ["t"]
        assert (await handle.result()).content
        assert await saved_calls.list_refs() == []


async def test_a_saved_call_is_removed_when_its_task_has_failed(tmp_path: Path) -> None:
    saved_calls = SavedCalls(tmp_path / "calls.book")
    server = FakeServer("2025-11-25")
    server.set_tasks({"status": "failed"})
    server.set_responses("tasks/result", MCPError(INTERNAL_ERROR, "it broke"))
    async with server.client(saved_calls=saved_calls) as client:
        with pytest.raises(MCPError, match="broke"):
            await client.call_tool("work")
    assert await saved_calls.list_refs() == []


async def test_a_pending_connection_is_closed_with_its_client() -> None:
    server = FakeServer()
    server.set_tasks({"status": "working"})
    async with server.client() as client:
        handle = await client.call("work")
        server.set_responses("server/discover", NeverResponds())
        server.set_responses("tasks/get", ServerDied())
        waiting = asyncio.create_task(handle.result())
        await server.wait_until(lambda: server.connections == 2)
    with pytest.raises(Exception, match=r"not open|reached"):
        await waiting
    assert server.open == 0


@pytest.mark.parametrize("odd", [{"inputRequests": None}, {"inputRequests": []}, {"error": {}}, {"result": "x"}])
async def test_fields_that_do_not_belong_to_a_working_task_are_ignored(odd: dict[str, Any]) -> None:
    server = FakeServer()
    server.complete_after({"status": "working", "pollIntervalMs": 1, **odd})
    async with server.client() as client:
        assert (await client.call_tool("work")).content


async def test_an_answer_that_arrives_too_late_is_not_an_error() -> None:
    server = FakeServer()
    server.complete_after({"status": "input_required", "inputRequests": {"sure": QUESTION}, "pollIntervalMs": 1})
    server.set_responses("tasks/update", MCPError(INVALID_PARAMS, "it has completed"))
    async with server.client(elicitation_callback=accept) as client:
        assert (await client.call_tool("work")).content
    assert server.count_requests("tasks/update") == 1


async def test_a_refused_answer_to_an_open_question_raises() -> None:
    server = FakeServer()
    server.set_tasks({"status": "input_required", "inputRequests": {"sure": QUESTION}, "pollIntervalMs": 1})
    server.set_responses("tasks/update", MCPError(INVALID_PARAMS, "no such choice"))
    async with server.client(elicitation_callback=accept) as client:
        with pytest.raises(MCPError, match="no such choice"):
            await client.call_tool("work")


async def test_a_callback_that_times_out_raises_and_is_not_called_again() -> None:
    asked = 0

    async def give_up(*_: object) -> ElicitResult:
        nonlocal asked
        asked += 1
        raise TimeoutError("nobody there")

    server = FakeServer()
    server.set_tasks({"status": "input_required", "inputRequests": {"sure": QUESTION}, "pollIntervalMs": 1})
    async with server.client(elicitation_callback=give_up) as client:
        with pytest.raises(TimeoutError, match="nobody there"):
            await client.call_tool("work")
    assert asked == 1
