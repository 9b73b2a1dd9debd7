"""On a FastMCP server with tokens, a task belongs to its caller, and only that caller can reach it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastmcp.server.auth import require_scopes
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_access_token, get_http_headers
from pydantic import BaseModel

from fastmcp import Context
from raincheck import TaskContext
from tests.support.fastmcp.example_server import FastMCPExample
from tests.support.server.caller_v2025 import connected
from tests.support.server.caller_v2026 import EXTENSION, Caller, Refused
from tests.support.server.transports import HttpTransport
from tests.support.server.transports_v2025 import v2025_http

pytestmark = pytest.mark.anyio

TOKENS: dict[str, dict[str, Any]] = {
    "of-alice": {"client_id": "alice", "scopes": ["read", "write"]},
    "of-mallory": {"client_id": "mallory", "scopes": ["read"]},
}
YES: dict[str, Any] = {"action": "accept", "content": {"sure": True}}


class Sure(BaseModel):
    sure: bool


@asynccontextmanager
async def serving() -> AsyncGenerator[HttpTransport]:
    example = FastMCPExample(server={"auth": StaticTokenVerifier(TOKENS)})

    @example.tasks.tool
    async def whoami(task: TaskContext) -> str:
        await task.elicit("Go on?", Sure)
        token = get_access_token()
        return "nobody" if token is None else f"{token.client_id} {token.scopes} {token.token!r}"

    @example.tasks.tool(auth=require_scopes("write"))
    async def write() -> str:
        return "written"

    @example.tasks.tool
    async def look_around(ctx: Context) -> dict[str, object]:
        token = get_access_token()
        return {
            "token": None if token is None else token.token,
            "authorization": get_http_headers(include_all=True).get("authorization"),
            "extensions": ctx.client_extension_settings(EXTENSION),
        }

    async with example.serve() as transport:
        yield transport


def headers_of(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer of-{name}"}


async def test_a_task_of_one_token_does_not_exist_for_another() -> None:
    async with serving() as transport:
        alice, mallory = (Caller(transport, headers=headers_of(name)) for name in ("alice", "mallory"))
        task_id = await alice.start("whoami")
        [key] = (await alice.until(task_id, "input_required"))["inputRequests"]
        messages: list[str] = []
        for params in ({"taskId": task_id}, {"taskId": task_id[:-1] + ("0" if task_id[-1] != "0" else "1")}):
            for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                more = {"inputResponses": {key: YES}} if method == "tasks/update" else {}
                with pytest.raises(Refused) as refused:
                    await mallory.request(method, {**params, **more})
                assert refused.value.code == -32602
                messages.append(refused.value.message.replace(params["taskId"], "ID"))
        assert messages[:3] == messages[3:]
        assert (await alice.get(task_id))["status"] == "input_required"
        await alice.update(task_id, {key: YES})
        result = await alice.result(task_id)
        assert result["structuredContent"] == {"result": "alice ['read', 'write'] ''"}


async def test_a_body_can_not_see_the_request_that_created_its_task() -> None:
    async with serving() as transport:
        alice = Caller(transport, headers=headers_of("alice"))
        result = await alice.result(await alice.start("look_around"))
        assert result["structuredContent"] == {"token": "", "authorization": None, "extensions": None}


async def test_a_caller_of_2025_lists_only_its_own_tasks() -> None:
    async with (
        serving() as transport,
        v2025_http(transport, **headers_of("alice")) as hers,
        v2025_http(transport, **headers_of("mallory")) as his,
        connected(hers) as alice,
        connected(his) as mallory,
    ):
        task_id = await alice.start("whoami")
        assert [task["taskId"] for task in (await alice.page())["tasks"]] == [task_id]
        assert (await mallory.page())["tasks"] == []
        with pytest.raises(Refused) as refused:
            await mallory.get(task_id)
        assert refused.value.code == -32602


async def test_a_caller_without_tasks_reaches_only_its_own_tasks() -> None:
    async with serving() as transport:
        task_id = await Caller(transport, headers=headers_of("alice")).start("whoami")
        plain = Caller(transport, capabilities={}, headers=headers_of("mallory"))
        answer = await plain.call("task_status", {"task_id": task_id})
        assert answer["isError"]
        answer = await plain.call("task_status", {})
        assert task_id not in str(answer)


async def test_a_tool_that_a_caller_may_not_call_becomes_no_task() -> None:
    async with serving() as transport:
        alice, mallory = (Caller(transport, headers=headers_of(name)) for name in ("alice", "mallory"))
        assert (await alice.result(await alice.start("write")))["structuredContent"] == {"result": "written"}
        refused = await mallory.call("write")
        assert (refused["isError"], refused["content"][0]["text"]) == (True, "Unknown tool: 'write'")
