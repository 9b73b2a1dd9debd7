"""What servers of other libraries really send, as the page beside this says: our client is made for these, too."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.peers.raw_session import EXTENSION, Heard, Json, PeerWire, talking_to
from tests.support.peers import FASTMCP4, MCP1, Peer

pytestmark = pytest.mark.anyio

RELATED = "io.modelcontextprotocol/related-task"
YES = {"action": "accept", "content": {"sure": True}}


@pytest.fixture(scope="module")
def mcp1_url() -> Iterator[str]:
    """One process for all tests that need no other."""
    with MCP1.on_http() as url:
        yield url


@pytest.fixture(scope="module")
def fastmcp4_url() -> Iterator[str]:
    with FASTMCP4.on_http() as url:
        yield url


@pytest.fixture(params=["stdio", "http"])
def mcp1_either_way(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("mcp1_url") if request.param == "http" else None


@pytest.fixture(params=["stdio", "http"])
def fastmcp4_either_way(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("fastmcp4_url") if request.param == "http" else None


async def start_2025(wire: PeerWire, tool: str, **arguments: Any) -> str:
    created = await wire.call(tool, arguments, task={})
    return created["task"]["taskId"]


async def start_2026(wire: PeerWire, tool: str, **arguments: Any) -> str:
    created = await wire.call(tool, arguments)
    assert created["resultType"] == "task"
    return created["taskId"]


def text_of(result: Json) -> str:
    return result["content"][0]["text"]


async def test_mcp1_goes_through_the_life_of_a_task(mcp1_either_way: str | None) -> None:
    heard = Heard()
    async with talking_to(MCP1, mcp1_either_way, heard=heard) as wire:
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
        said = [one.get("statusMessage") for one in heard.of("notifications/tasks/status")]
        assert "step 1 of 3" in said


async def test_mcp1_asks_on_the_stream_of_the_result(mcp1_either_way: str | None) -> None:
    heard = Heard()
    async with talking_to(MCP1, mcp1_either_way, heard=heard) as wire:
        asking = await start_2025(wire, "ask", question="Sure?")
        assert (await wire.until(asking, "input_required"))["status"] == "input_required"
        assert heard.questions == []
        assert text_of(await wire.request("tasks/result", taskId=asking)) == "accept {'sure': True}"
        assert [(one["message"], one["_meta"]) for one in heard.questions] == [("Sure?", {RELATED: {"taskId": asking}})]


async def test_mcp1_cancels_and_then_has_no_result(mcp1_either_way: str | None) -> None:
    async with talking_to(MCP1, mcp1_either_way) as wire:
        waiting = await start_2025(wire, "wait")
        assert (await wire.request("tasks/cancel", taskId=waiting))["status"] == "cancelled"
        assert (await wire.refusal("tasks/cancel", taskId=waiting))["code"] == -32602
        assert await wire.request("tasks/result", taskId=waiting) == {"_meta": {RELATED: {"taskId": waiting}}}


async def test_mcp1_leaves_out_a_ttl_that_is_null(mcp1_url: str) -> None:
    async with talking_to(MCP1, mcp1_url) as wire:
        assert "ttl" not in (await wire.call("greet", {"name": "you"}, task={}))["task"]


async def test_mcp1_ends_a_tool_error_as_completed(mcp1_url: str) -> None:
    async with talking_to(MCP1, mcp1_url) as wire:
        failing = await start_2025(wire, "fail", why="no paper")
        assert (await wire.until(failing))["status"] == "completed"
        result = await wire.request("tasks/result", taskId=failing)
        assert (result["isError"], text_of(result)) == (True, "no paper")


async def test_mcp1_has_neither_result_nor_error_of_a_body_that_raised(mcp1_url: str) -> None:
    async with talking_to(MCP1, mcp1_url) as wire:
        crashing = await start_2025(wire, "crash", why="no paper")
        task = await wire.until(crashing)
        assert (task["status"], task["statusMessage"]) == ("failed", "no paper")
        assert await wire.request("tasks/result", taskId=crashing) == {"_meta": {RELATED: {"taskId": crashing}}}


async def test_mcp1_answers_a_call_in_the_wrong_mode_with_a_tool_error(mcp1_url: str) -> None:
    async with talking_to(MCP1, mcp1_url) as wire:
        for call in (wire.call("plain", {"name": "you"}, task={}), wire.call("always", {"name": "you"})):
            result = await call
            assert result["isError"]
            assert "task-augmented" in text_of(result)


async def test_mcp1_knows_a_task_in_its_own_session_alone(mcp1_url: str) -> None:
    async with talking_to(MCP1, mcp1_url) as wire, talking_to(MCP1, mcp1_url) as other:
        theirs = await start_2025(wire, "greet", name="you")
        assert (await other.refusal("tasks/get", taskId=theirs))["code"] == -32602
        assert (await other.refusal("tasks/update", taskId=theirs))["code"] == -32602


async def test_fastmcp4_goes_through_the_life_of_a_task(fastmcp4_either_way: str | None) -> None:
    async with talking_to(FASTMCP4, fastmcp4_either_way) as wire:
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


async def test_fastmcp4_asks_in_what_get_answers(fastmcp4_either_way: str | None) -> None:
    async with talking_to(FASTMCP4, fastmcp4_either_way) as wire:
        asking = await start_2026(wire, "ask", question="Sure?")
        task = await wire.until(asking, "input_required")
        [(key, request)] = task["inputRequests"].items()
        assert (request["method"], request["params"]["message"]) == ("elicitation/create", "Sure?")
        for responses in ({"another": YES}, {key: YES}, {key: YES}):
            answer = await wire.request("tasks/update", taskId=asking, inputResponses=responses)
            assert answer["resultType"] == "complete"
        assert text_of((await wire.until(asking))["result"]) == "accept {'sure': True}"


async def test_fastmcp4_cancels_as_often_as_it_is_asked(fastmcp4_either_way: str | None) -> None:
    async with talking_to(FASTMCP4, fastmcp4_either_way) as wire:
        waiting = await start_2026(wire, "wait")
        for _ in range(2):
            assert (await wire.request("tasks/cancel", taskId=waiting))["resultType"] == "complete"
        assert (await wire.until(waiting))["status"] == "cancelled"


@pytest.mark.parametrize(("tool", "said"), [("fail", "no paper"), ("crash", "Error calling tool 'crash': no paper")])
async def test_fastmcp4_ends_what_failed_as_completed(tool: str, said: str, fastmcp4_url: str) -> None:
    async with talking_to(FASTMCP4, fastmcp4_url) as wire:
        task = await wire.until(await start_2026(wire, tool, why="no paper"))
        assert (task["status"], task["result"]["isError"], text_of(task["result"])) == ("completed", True, said)


async def test_fastmcp4_says_of_an_ended_task_that_it_has_just_changed(fastmcp4_url: str) -> None:
    async with talking_to(FASTMCP4, fastmcp4_url) as wire:
        task = await wire.until(await start_2026(wire, "greet", name="you"))
        again = await wire.request("tasks/get", taskId=task["taskId"])
        assert again["lastUpdatedAt"] > task["lastUpdatedAt"]


async def test_fastmcp4_pushes_nothing(fastmcp4_url: str) -> None:
    async with talking_to(FASTMCP4, fastmcp4_url) as wire:
        for method in ("subscriptions/listen", "tasks/result", "tasks/list"):
            assert (await wire.refusal(method, notifications={}))["code"] == -32601


async def test_fastmcp4_refuses_tasks_to_whoever_does_not_declare_them(fastmcp4_url: str) -> None:
    async with talking_to(FASTMCP4, fastmcp4_url, has_tasks=False) as wire:
        assert text_of(await wire.call("greet", {"name": "you"})) == "hello you"
        refusal = await wire.refusal("tools/call", name="always", arguments={"name": "you"})
        assert (refusal["code"], refusal["data"]) == (-32021, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})
        assert (await wire.refusal("tasks/get", taskId="any"))["code"] == -32021


async def test_fastmcp4_lists_tasks_in_2025_and_has_none_there(fastmcp4_url: str) -> None:
    async with talking_to(FASTMCP4, fastmcp4_url, version="2025-11-25") as wire:
        assert "tasks" not in wire.hello["capabilities"]
        greet = (await wire.request("tools/list"))["tools"][0]
        assert (greet["name"], greet["execution"]) == ("greet", {"taskSupport": "optional"})
        assert text_of(await wire.call("greet", {"name": "you"}, task={})) == "hello you"
        assert (await wire.refusal("tasks/get", taskId="any"))["code"] == -32601


@pytest.mark.parametrize("peer", [MCP1, FASTMCP4], ids=lambda peer: peer.name)
async def test_a_peer_serves_what_is_no_task_and_knows_no_strange_ids(
    peer: Peer, request: pytest.FixtureRequest
) -> None:
    async with talking_to(peer, request.getfixturevalue(f"{peer.name}_url")) as wire:
        assert (await wire.call("plain", {"name": "you"}))["structuredContent"] == {"result": "hello you"}
        assert (await wire.refusal("tasks/get", taskId="strange"))["code"] == -32602
        assert (await wire.refusal("tasks/cancel", taskId="strange"))["code"] == -32602


def test_a_missing_peer_fails_in_continuous_integration_and_is_skipped_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nobody = Peer("nobody", "2026-07-28")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="scripts/setup makes it"):
        nobody.python()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="scripts/setup makes it"):
        nobody.python()
