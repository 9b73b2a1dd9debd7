"""Keys of calls: a call is made again only where the server says that it begins it once."""

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PaginatedRequestParams

from raincheck.client import CallLost, TaskClient
from tests.support.client.callers import ON_ALL, begin, calling
from tests.support.client.example_server import Server
from tests.support.client.fake_servers import DONE, TOOL, WORKING, Dead, Fake
from tests.support.client.proxy import MODES, at_url, between
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
async def test_a_call_is_not_made_again_where_nobody_says_that_its_key_is_taken(version: str, meta: object) -> None:
    fake = Fake(version, tool={"_meta": meta})
    fake.says("tools/call", Dead(), TASK)
    async with fake.client(clock=SkippingClock()) as client:
        with pytest.raises(CallLost, match="The key does not help") as raised:
            await client.call("work", key="mine")
        assert raised.value.has_key
    assert fake.times("tools/call") == 1


@BOTH
async def test_a_call_is_not_made_again_on_a_server_that_takes_keys_no_more(version: str) -> None:
    fake = Fake(version)
    tool = TOOL if version == "2026-07-28" else {**TOOL, "execution": {"taskSupport": "optional"}}
    fake.says("tools/list", {"tools": [{**tool, "_meta": {MARK: True}}], **REST}, {"tools": [tool], **REST})
    fake.says("tools/call", Dead(), TASK)
    async with fake.client(clock=SkippingClock()) as client:
        with pytest.raises(CallLost, match="takes no keys any more"):
            await client.call("work", key="mine")
    assert (fake.times("tools/call"), fake.connections) == (1, 2)


@BOTH
async def test_a_server_that_dies_while_it_lists_its_tools_has_begun_nothing(version: str) -> None:
    fake = Fake(version)
    fake.says("tools/list", Dead(), MCPError(-32601, "Method not found"), {"tools": [], **REST})
    async with fake.client(clock=SkippingClock()) as client:
        # One that lists nothing is called all the same.
        fake.says("tools/call", {**DONE, "resultType": "complete"})
        await client.call("work", key="mine")
    assert fake.times("tools/call") == 1


async def test_a_list_that_can_not_be_read_names_no_tool_that_takes_keys() -> None:
    fake = Fake()
    fake.says("tools/list", {"tools": [{**TOOL, "_meta": {MARK: True}}, {"name": "odd", "inputSchema": None}], **REST})
    fake.says("tools/call", TASK, Dead())
    async with fake.client(clock=SkippingClock()) as client:
        assert (await client.call("work", key="mine")).task_id == "t"
        with pytest.raises(CallLost, match="The key does not help"):
            await client.call("work", key="mine")
    assert fake.times("tools/call") == 2


async def test_tools_are_listed_for_keys_once_for_each_connection() -> None:
    fake = Fake()
    async with fake.client() as client:
        await client.call("work")
        assert fake.times("tools/list") == 0
        for key in ("one", "two"):
            await client.call("work", key=key)
    assert fake.times("tools/list") == 1


@ON_ALL
async def test_a_server_says_of_its_tools_that_they_take_keys_and_of_no_others(tier: str, tmp_path: Path) -> None:
    server = Server(str(tmp_path / "tasks.db"))

    @server.mcp.tool(meta={"example.com/mine": 1})
    async def ask_now() -> str:
        return "now"

    @server.tasks.tool(meta={"example.com/mine": 1})
    async def ask_later() -> str:
        return "later"

    async with calling(server, tier) as client:
        assert {"add", "add_at_once", "add_without_task", "ask_later"} <= await marked(client)
        assert "ask_now" not in await marked(client)
        assert "task_wait" not in await marked(client)
        told = await listed(client)
        assert told["ask_later"] == {"example.com/mine": 1, MARK: True}
        assert told["ask_now"] == {"example.com/mine": 1}
        # Others are told nothing that they did not ask for.
        page = await (await client.connected()).list_tools()
        assert MARK not in {name for tool in page.tools for name in tool.meta or {}}


@MODES
async def test_who_can_not_be_told_from_others_is_not_told_to_take_a_key(mode: str, tmp_path: Path) -> None:
    server = Server(str(tmp_path / "tasks.db"))
    async with between(server, mode) as (client, _):
        assert "pass_gate" in await marked(client)
    async with at_url(server, mode) as (client, proxy):
        assert await marked(client) == set()
        with pytest.raises(MCPError, match="leave it out"):
            await client.call("pass_gate", key="mine")
        proxy.hides.add("tools/call")
        with pytest.raises(CallLost, match="if the server takes one from you") as raised:
            await client.call("pass_gate")
        assert not raised.value.has_key


async def test_who_is_known_by_a_session_alone_is_not_told_to_take_a_key(tmp_path: Path) -> None:
    server = Server(str(tmp_path / "tasks.db"), anonymous="session")
    async with at_url(server, "legacy") as (client, _):
        assert await marked(client) == set(), "in the next session it would be somebody else"


@MODES
async def test_a_server_that_forgets_keys_when_it_ends_does_not_say_that_it_takes_them(mode: str) -> None:
    async with between(Server("memory:"), mode) as (client, _):
        assert await marked(client) == set()


@MODES
async def test_a_call_of_a_tool_that_is_no_task_is_not_made_again(mode: str) -> None:
    server, called = Server(), list[str]()

    @server.mcp.tool()
    async def order(what: str) -> str:
        called.append(what)
        return what

    async with between(server, mode) as (client, proxy):
        proxy.hides.add("tools/call")
        with pytest.raises(CallLost, match="'order'"):
            await client.call("order", {"what": "tea"}, key="mine")
        await begin(client, "pass_gate", key="mine")
    assert called == ["tea"]
