"""Tests for idempotency keys: a call is resent only if the server declares that it starts it once."""

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PaginatedRequestParams

from raincheck.client import CallLost, TaskClient
from tests.support.client.callers import ON_ALL_PROTOCOLS, open_client, start_task
from tests.support.client.example_server import ExampleServer
from tests.support.client.fake_servers import DONE, TOOL, WORKING, FakeServer, ServerDied
from tests.support.client.proxy import MODES, direct_client, proxied_client
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])

MARK = "raincheck/takes-keys"
REST: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
"""What else belongs to a list in 2026-07-28."""
TASK: dict[str, Any] = {"task": WORKING, "resultType": "task", **WORKING}


async def listed(client: TaskClient) -> dict[str, Any]:
    """What is said of tools to those who ask for keys."""
    params = PaginatedRequestParams.model_validate({"_meta": {MARK: True}})
    page = await (await client.connected()).session.list_tools(params=params)
    return {tool.name: tool.meta or {} for tool in page.tools}


async def marked(client: TaskClient) -> set[str]:
    """The tools that say that they take keys."""
    return {name for name, meta in (await listed(client)).items() if meta.get(MARK) is True}


@BOTH
@pytest.mark.parametrize("meta", [None, {}, {MARK: False}, {MARK: "yes"}])
async def test_a_call_is_not_resent_if_the_server_declares_no_support_for_keys(version: str, meta: object) -> None:
    fake = FakeServer(version, tool={"_meta": meta})
    fake.set_responses("tools/call", ServerDied(), TASK)
    async with fake.client(clock=SkippingClock()) as client:
        with pytest.raises(CallLost, match="The key does not help") as raised:
            await client.call("work", key="mine")
        assert raised.value.has_key
    assert fake.count_requests("tools/call") == 1


@BOTH
async def test_a_call_is_not_resent_to_a_server_that_no_longer_accepts_keys(version: str) -> None:
    fake = FakeServer(version)
    tool = TOOL if version == "2026-07-28" else {**TOOL, "execution": {"taskSupport": "optional"}}
    fake.set_responses("tools/list", {"tools": [{**tool, "_meta": {MARK: True}}], **REST}, {"tools": [tool], **REST})
    fake.set_responses("tools/call", ServerDied(), TASK)
    async with fake.client(clock=SkippingClock()) as client:
        with pytest.raises(CallLost, match="no longer accepts keys"):
            await client.call("work", key="mine")
    assert (fake.count_requests("tools/call"), fake.connections) == (1, 2)


@BOTH
async def test_a_server_that_dies_while_listing_its_tools_has_started_nothing(version: str) -> None:
    fake = FakeServer(version)
    fake.set_responses("tools/list", ServerDied(), MCPError(-32601, "Method not found"), {"tools": [], **REST})
    async with fake.client(clock=SkippingClock()) as client:
        # One that lists nothing is called all the same.
        fake.set_responses("tools/call", {**DONE, "resultType": "complete"})
        await client.call("work", key="mine")
    assert fake.count_requests("tools/call") == 1


async def test_an_unreadable_tool_list_declares_no_support_for_keys() -> None:
    fake = FakeServer()
    fake.set_responses(
        "tools/list", {"tools": [{**TOOL, "_meta": {MARK: True}}, {"name": "odd", "inputSchema": None}], **REST}
    )
    fake.set_responses("tools/call", TASK, ServerDied())
    async with fake.client(clock=SkippingClock()) as client:
        assert (await client.call("work", key="mine")).task_id == "t"
        with pytest.raises(CallLost, match="The key does not help"):
            await client.call("work", key="mine")
    assert fake.count_requests("tools/call") == 2


async def test_tools_are_listed_once_per_connection_to_check_for_keys() -> None:
    fake = FakeServer()
    async with fake.client() as client:
        await client.call("work")
        assert fake.count_requests("tools/list") == 0
        for key in ("one", "two"):
            await client.call("work", key=key)
    assert fake.count_requests("tools/list") == 1


@ON_ALL_PROTOCOLS
async def test_a_server_declares_keys_only_for_its_task_tools(tier: str, tmp_path: Path) -> None:
    server = ExampleServer(str(tmp_path / "tasks.db"))

    @server.mcp.tool(meta={"example.com/mine": 1})
    async def ask_now() -> str:
        return "now"

    @server.tasks.tool(meta={"example.com/mine": 1})
    async def ask_later() -> str:
        return "later"

    async with open_client(server, tier) as client:
        assert {"add", "add_at_once", "add_without_task", "ask_later"} <= await marked(client)
        assert "ask_now" not in await marked(client)
        assert "task_wait" not in await marked(client)
        reported = await listed(client)
        assert reported["ask_later"] == {"example.com/mine": 1, MARK: True}
        assert reported["ask_now"] == {"example.com/mine": 1}
        # The metadata is sent only to clients that request it.
        page = await (await client.connected()).list_tools()
        assert MARK not in {name for tool in page.tools for name in tool.meta or {}}


@MODES
async def test_keys_are_not_declared_to_unidentified_callers(mode: str, tmp_path: Path) -> None:
    server = ExampleServer(str(tmp_path / "tasks.db"))
    async with proxied_client(server, mode) as (client, _):
        assert "pass_gate" in await marked(client)
    async with direct_client(server, mode) as (client, proxy):
        assert await marked(client) == set()
        with pytest.raises(MCPError, match="leave it out"):
            await client.call("pass_gate", key="mine")
        proxy.lost_responses.add("tools/call")
        with pytest.raises(CallLost, match="can identify you") as raised:
            await client.call("pass_gate")
        assert not raised.value.has_key


async def test_keys_are_not_declared_to_callers_known_only_by_their_session(tmp_path: Path) -> None:
    server = ExampleServer(str(tmp_path / "tasks.db"), anonymous="session")
    async with direct_client(server, "legacy") as (client, _):
        assert await marked(client) == set(), "in the next session it would be a different caller"


@MODES
async def test_a_server_with_a_store_in_memory_does_not_declare_keys(mode: str) -> None:
    async with proxied_client(ExampleServer("memory:"), mode) as (client, _):
        assert await marked(client) == set()


@MODES
async def test_a_call_of_a_tool_without_tasks_is_not_resent(mode: str) -> None:
    server, called = ExampleServer(), list[str]()

    @server.mcp.tool()
    async def order(what: str) -> str:
        called.append(what)
        return what

    async with proxied_client(server, mode) as (client, proxy):
        proxy.lost_responses.add("tools/call")
        with pytest.raises(CallLost, match="'order'"):
            await client.call("order", {"what": "tea"}, key="mine")
        await start_task(client, "pass_gate", key="mine")
    assert called == ["tea"]
