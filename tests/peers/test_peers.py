"""Servers of other libraries behave as README.md in this folder describes, which our client relies on."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.peers.raw_session import EXTENSION, Json, PeerSession, ReceivedMessages, open_session
from tests.support.peers import FASTMCP4, MCP1, Peer

pytestmark = pytest.mark.anyio

RELATED = "io.modelcontextprotocol/related-task"
YES = {"action": "accept", "content": {"sure": True}}


@pytest.fixture(scope="module")
def mcp1_url() -> Iterator[str]:
    """Start one server process, which all HTTP tests share."""
    with MCP1.on_http() as url:
        yield url


@pytest.fixture(scope="module")
def fastmcp4_url() -> Iterator[str]:
    with FASTMCP4.on_http() as url:
        yield url


@pytest.fixture(params=["stdio", "http"])
def mcp1_any_transport(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("mcp1_url") if request.param == "http" else None


@pytest.fixture(params=["stdio", "http"])
def fastmcp4_any_transport(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("fastmcp4_url") if request.param == "http" else None


async def start_2025(wire: PeerSession, tool: str, **arguments: Any) -> str:
    created = await wire.call(tool, arguments, task={})
    return created["task"]["taskId"]


async def start_2026(wire: PeerSession, tool: str, **arguments: Any) -> str:
    created = await wire.call(tool, arguments)
    assert created["resultType"] == "task"
    return created["taskId"]


def text_of(result: Json) -> str:
    return result["content"][0]["text"]


async def test_mcp1_runs_a_task_to_its_end(mcp1_any_transport: str | None) -> None:
    received = ReceivedMessages()
    async with open_session(MCP1, mcp1_any_transport, received=received) as wire:
        assert wire.hello["capabilities"]["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        tools = (await wire.request("tools/list"))["tools"]
        support = {tool["name"]: tool.get("execution", {}).get("taskSupport") for tool in tools}
        assert {support["greet"], support["always"], support["plain"]} == {"optional", "required", None}

        created = (await wire.call("greet", {"name": "you"}, task={"ttl": 60_000}))["task"]
        assert created.keys() == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
        assert (created["status"], created["ttl"], created["pollInterval"]) == ("working", 60_000, 500)
        task = await wire.until(created["taskId"])
        assert task == {**created, "status": "completed", "lastUpdatedAt": task["lastUpdatedAt"]}
        result = await wire.request("tasks/result", taskId=created["taskId"])
        assert result["_meta"] == {RELATED: {"taskId": created["taskId"]}}
        assert result["structuredContent"] == {"result": "hello you"}
        assert (await wire.request("tasks/list", cursor="bad"))["tasks"] == [task]

        counting = await start_2025(wire, "count", steps=3)
        assert text_of(await wire.request("tasks/result", taskId=counting)) == "counted to 3"
        messages = [params.get("statusMessage") for params in received.of("notifications/tasks/status")]
        assert "step 1 of 3" in messages


async def test_mcp1_sends_input_requests_on_the_stream_of_the_result(mcp1_any_transport: str | None) -> None:
    received = ReceivedMessages()
    async with open_session(MCP1, mcp1_any_transport, received=received) as wire:
        asking = await start_2025(wire, "ask", question="Sure?")
        assert (await wire.until(asking, "input_required"))["status"] == "input_required"
        assert received.questions == []
        assert text_of(await wire.request("tasks/result", taskId=asking)) == "accept {'sure': True}"
        assert [(question["message"], question["_meta"]) for question in received.questions] == [
            ("Sure?", {RELATED: {"taskId": asking}})
        ]


async def test_mcp1_cancels_and_then_has_no_result(mcp1_any_transport: str | None) -> None:
    async with open_session(MCP1, mcp1_any_transport) as wire:
        waiting = await start_2025(wire, "wait")
        assert (await wire.request("tasks/cancel", taskId=waiting))["status"] == "cancelled"
        assert (await wire.refusal("tasks/cancel", taskId=waiting))["code"] == -32602
        assert await wire.request("tasks/result", taskId=waiting) == {"_meta": {RELATED: {"taskId": waiting}}}


async def test_mcp1_leaves_out_a_ttl_that_is_null(mcp1_url: str) -> None:
    async with open_session(MCP1, mcp1_url) as wire:
        assert "ttl" not in (await wire.call("greet", {"name": "you"}, task={}))["task"]


async def test_mcp1_ends_a_tool_error_as_completed(mcp1_url: str) -> None:
    async with open_session(MCP1, mcp1_url) as wire:
        failing = await start_2025(wire, "fail", why="no paper")
        assert (await wire.until(failing))["status"] == "completed"
        result = await wire.request("tasks/result", taskId=failing)
        assert (result["isError"], text_of(result)) == (True, "no paper")


async def test_mcp1_returns_neither_result_nor_error_of_a_body_that_raised(mcp1_url: str) -> None:
    async with open_session(MCP1, mcp1_url) as wire:
        crashing = await start_2025(wire, "crash", why="no paper")
        task = await wire.until(crashing)
        assert (task["status"], task["statusMessage"]) == ("failed", "no paper")
        assert await wire.request("tasks/result", taskId=crashing) == {"_meta": {RELATED: {"taskId": crashing}}}


async def test_mcp1_answers_a_call_in_the_wrong_mode_with_a_tool_error(mcp1_url: str) -> None:
    async with open_session(MCP1, mcp1_url) as wire:
        for call in (wire.call("plain", {"name": "you"}, task={}), wire.call("always", {"name": "you"})):
            result = await call
            assert result["isError"]
            assert "task-augmented" in text_of(result)


async def test_mcp1_finds_a_task_only_in_its_own_session(mcp1_url: str) -> None:
    async with open_session(MCP1, mcp1_url) as wire, open_session(MCP1, mcp1_url) as other:
        task_id = await start_2025(wire, "greet", name="you")
        assert (await other.refusal("tasks/get", taskId=task_id))["code"] == -32602
        assert (await other.refusal("tasks/update", taskId=task_id))["code"] == -32602


async def test_fastmcp4_runs_a_task_to_its_end(fastmcp4_any_transport: str | None) -> None:
    async with open_session(FASTMCP4, fastmcp4_any_transport) as wire:
        assert wire.hello["supportedVersions"] == ["2026-07-28"]
        assert wire.hello["capabilities"]["extensions"][EXTENSION] == {}
        created = await wire.call("greet", {"name": "you"})
        assert created.keys() - {"_meta"} == {
            *("taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "resultType")
        }
        assert (created["ttlMs"], created["pollIntervalMs"], created["resultType"]) == (900_000, 5_000, "task")
        task = await wire.until(created["taskId"])
        assert (task["status"], task["resultType"]) == ("completed", "complete")
        assert task["result"]["structuredContent"] == {"result": "hello you"}
        assert (await wire.until(await start_2026(wire, "count", steps=3)))["status"] == "completed"


async def test_fastmcp4_returns_input_requests_from_tasks_get(fastmcp4_any_transport: str | None) -> None:
    async with open_session(FASTMCP4, fastmcp4_any_transport) as wire:
        asking = await start_2026(wire, "ask", question="Sure?")
        task = await wire.until(asking, "input_required")
        [(key, request)] = task["inputRequests"].items()
        assert (request["method"], request["params"]["message"]) == ("elicitation/create", "Sure?")
        for responses in ({"another": YES}, {key: YES}, {key: YES}):
            answer = await wire.request("tasks/update", taskId=asking, inputResponses=responses)
            assert answer["resultType"] == "complete"
        assert text_of((await wire.until(asking))["result"]) == "accept {'sure': True}"


async def test_fastmcp4_accepts_repeated_cancels(fastmcp4_any_transport: str | None) -> None:
    async with open_session(FASTMCP4, fastmcp4_any_transport) as wire:
        waiting = await start_2026(wire, "wait")
        for _ in range(2):
            assert (await wire.request("tasks/cancel", taskId=waiting))["resultType"] == "complete"
        assert (await wire.until(waiting))["status"] == "cancelled"


@pytest.mark.parametrize(("tool", "message"), [("fail", "no paper"), ("crash", "Error calling tool 'crash': no paper")])
async def test_fastmcp4_completes_tasks_that_failed(tool: str, message: str, fastmcp4_url: str) -> None:
    async with open_session(FASTMCP4, fastmcp4_url) as wire:
        task = await wire.until(await start_2026(wire, tool, why="no paper"))
        assert (task["status"], task["result"]["isError"], text_of(task["result"])) == ("completed", True, message)


async def test_fastmcp4_updates_last_updated_at_of_an_ended_task_with_each_read(fastmcp4_url: str) -> None:
    async with open_session(FASTMCP4, fastmcp4_url) as wire:
        task = await wire.until(await start_2026(wire, "greet", name="you"))
        again = await wire.request("tasks/get", taskId=task["taskId"])
        assert again["lastUpdatedAt"] > task["lastUpdatedAt"]


async def test_fastmcp4_sends_no_notifications(fastmcp4_url: str) -> None:
    async with open_session(FASTMCP4, fastmcp4_url) as wire:
        for method in ("subscriptions/listen", "tasks/result", "tasks/list"):
            assert (await wire.refusal(method, notifications={}))["code"] == -32601


async def test_fastmcp4_rejects_tasks_of_clients_that_do_not_declare_them(fastmcp4_url: str) -> None:
    async with open_session(FASTMCP4, fastmcp4_url, has_tasks=False) as wire:
        assert text_of(await wire.call("greet", {"name": "you"})) == "hello you"
        refusal = await wire.refusal("tools/call", name="always", arguments={"name": "you"})
        assert (refusal["code"], refusal["data"]) == (-32021, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})
        assert (await wire.refusal("tasks/get", taskId="any"))["code"] == -32021


async def test_fastmcp4_lists_tasks_in_2025_and_has_none_there(fastmcp4_url: str) -> None:
    async with open_session(FASTMCP4, fastmcp4_url, version="2025-11-25") as wire:
        assert "tasks" not in wire.hello["capabilities"]
        greet = (await wire.request("tools/list"))["tools"][0]
        assert (greet["name"], greet["execution"]) == ("greet", {"taskSupport": "optional"})
        assert text_of(await wire.call("greet", {"name": "you"}, task={})) == "hello you"
        assert (await wire.refusal("tasks/get", taskId="any"))["code"] == -32601


@pytest.mark.parametrize("peer", [MCP1, FASTMCP4], ids=lambda peer: peer.name)
async def test_a_peer_serves_plain_calls_and_rejects_unknown_ids(peer: Peer, request: pytest.FixtureRequest) -> None:
    async with open_session(peer, request.getfixturevalue(f"{peer.name}_url")) as wire:
        assert (await wire.call("plain", {"name": "you"}))["structuredContent"] == {"result": "hello you"}
        assert (await wire.refusal("tasks/get", taskId="strange"))["code"] == -32602
        assert (await wire.refusal("tasks/cancel", taskId="strange"))["code"] == -32602


def test_a_missing_peer_fails_in_continuous_integration_and_is_skipped_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = Peer("missing", "2026-07-28")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="scripts/setup makes it"):
        missing.python()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="scripts/setup makes it"):
        missing.python()
