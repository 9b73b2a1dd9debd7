"""What is not done twice, not lost, and not given up too soon, whatever a server says in between."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, ElicitResult

from raincheck.client import SavedCalls
from tests.support.client.fake_servers import DONE, Dead, Fake, Hung

QUESTION: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
}


async def accept(*_: object) -> ElicitResult:
    return ElicitResult(action="accept", content={})


@pytest.mark.parametrize("support", ["optional", "forbidden"])
async def test_a_tool_that_says_itself_that_a_method_is_missing_is_called_once(support: str) -> None:
    server = Fake("2025-11-25")
    server.says(
        "tools/list",
        {"tools": [{"name": "work", "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}]},
    )
    server.says("tools/call", {"task": {"taskId": "t", "status": "working"}} if support == "optional" else DONE)
    server.shows({"status": "completed"})
    async with server.client() as client:
        await client.call_tool("work")
        server.says("tools/call", MCPError(METHOD_NOT_FOUND, "upstream has no such method"))
        with pytest.raises(MCPError, match="upstream"):
            await client.call_tool("work")
    assert server.times("tools/call") == 2


async def test_a_tool_that_takes_tasks_no_more_is_called_without_one() -> None:
    server = Fake("2025-11-25")
    server.shows({"status": "completed"})
    async with server.client() as client:
        await client.call_tool("work")
        server.says("tools/list", {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})
        server.says("tools/call", MCPError(METHOD_NOT_FOUND, "not as a task"), DONE)
        assert (await client.call_tool("work")).content
    assert "task" not in server.asked[-1][1]


async def test_a_slip_is_kept_while_the_result_can_still_be_had(tmp_path: Path) -> None:
    book = SavedCalls(tmp_path / "calls.book")
    server = Fake("2025-11-25")
    server.shows({"status": "completed"})
    server.says("tasks/result", MCPError(INTERNAL_ERROR, "the store is busy"), DONE)
    async with server.client(saved_calls=book) as client:
        handle = await client.call("work")
        with pytest.raises(MCPError, match="busy"):
            await handle.result()
        assert [slip.task_id for slip in await book.list_refs()] == ["t"]
        assert (await handle.result()).content
        assert await book.list_refs() == []


async def test_a_slip_is_struck_off_when_its_task_has_failed(tmp_path: Path) -> None:
    book = SavedCalls(tmp_path / "calls.book")
    server = Fake("2025-11-25")
    server.shows({"status": "failed"})
    server.says("tasks/result", MCPError(INTERNAL_ERROR, "it broke"))
    async with server.client(saved_calls=book) as client:
        with pytest.raises(MCPError, match="broke"):
            await client.call_tool("work")
    assert await book.list_refs() == []


async def test_a_connection_that_is_being_made_is_closed_with_its_client() -> None:
    server = Fake()
    server.shows({"status": "working"})
    async with server.client() as client:
        handle = await client.call("work")
        server.says("server/discover", Hung())
        server.says("tasks/get", Dead())
        waiting = asyncio.create_task(handle.result())
        await server.until(lambda: server.connections == 2)
    with pytest.raises(Exception, match=r"not open|reached"):
        await waiting
    assert server.open == 0


@pytest.mark.parametrize("odd", [{"inputRequests": None}, {"inputRequests": []}, {"error": {}}, {"result": "x"}])
async def test_what_does_not_belong_to_a_working_task_is_not_looked_at(odd: dict[str, Any]) -> None:
    server = Fake()
    server.ends({"status": "working", "pollIntervalMs": 1, **odd})
    async with server.client() as client:
        assert (await client.call_tool("work")).content


async def test_an_answer_that_comes_too_late_is_no_failure() -> None:
    server = Fake()
    server.ends({"status": "input_required", "inputRequests": {"sure": QUESTION}, "pollIntervalMs": 1})
    server.says("tasks/update", MCPError(INVALID_PARAMS, "it has completed"))
    async with server.client(elicitation_callback=accept) as client:
        assert (await client.call_tool("work")).content
    assert server.times("tasks/update") == 1


async def test_an_answer_that_is_refused_while_it_is_still_asked_for_is_told() -> None:
    server = Fake()
    server.shows({"status": "input_required", "inputRequests": {"sure": QUESTION}, "pollIntervalMs": 1})
    server.says("tasks/update", MCPError(INVALID_PARAMS, "no such choice"))
    async with server.client(elicitation_callback=accept) as client:
        with pytest.raises(MCPError, match="no such choice"):
            await client.call_tool("work")


async def test_a_callback_that_gives_up_on_its_user_is_told_and_not_asked_again() -> None:
    asked = 0

    async def give_up(*_: object) -> ElicitResult:
        nonlocal asked
        asked += 1
        raise TimeoutError("nobody there")

    server = Fake()
    server.shows({"status": "input_required", "inputRequests": {"sure": QUESTION}, "pollIntervalMs": 1})
    async with server.client(elicitation_callback=give_up) as client:
        with pytest.raises(TimeoutError, match="nobody there"):
            await client.call_tool("work")
    assert asked == 1
