"""Whose a task is, on a FastMCP server with tokens: nobody else's, and its body knows whose."""

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
from tests.support.fastmcp.example_server import FastShop
from tests.support.server.caller_v2025 import connected
from tests.support.server.caller_v2026 import EXTENSION, Caller, Refused
from tests.support.server.transports import HttpWire
from tests.support.server.transports_v2025 import g1_http

pytestmark = pytest.mark.anyio

TOKENS: dict[str, dict[str, Any]] = {
    "of-alice": {"client_id": "alice", "scopes": ["read", "write"]},
    "of-mallory": {"client_id": "mallory", "scopes": ["read"]},
}
YES: dict[str, Any] = {"action": "accept", "content": {"sure": True}}


class Sure(BaseModel):
    sure: bool


@asynccontextmanager
async def serving() -> AsyncGenerator[HttpWire]:
    shop = FastShop(server={"auth": StaticTokenVerifier(TOKENS)})

    @shop.tasks.tool
    async def whoami(task: TaskContext) -> str:
        await task.elicit("Go on?", Sure)
        token = get_access_token()
        return "nobody" if token is None else f"{token.client_id} {token.scopes} {token.token!r}"

    @shop.tasks.tool(auth=require_scopes("write"))
    async def write() -> str:
        return "written"

    @shop.tasks.tool
    async def look_around(ctx: Context) -> dict[str, object]:
        token = get_access_token()
        return {
            "token": None if token is None else token.token,
            "authorization": get_http_headers(include_all=True).get("authorization"),
            "extensions": ctx.client_extension_settings(EXTENSION),
        }

    async with shop.serve() as wire:
        yield wire


def headers_of(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer of-{name}"}


async def test_a_task_of_one_token_does_not_exist_for_another() -> None:
    async with serving() as wire:
        alice, mallory = (Caller(wire, headers=headers_of(name)) for name in ("alice", "mallory"))
        task_id = await alice.start("whoami")
        [key] = (await alice.until(task_id, "input_required"))["inputRequests"]
        told: list[str] = []
        for params in ({"taskId": task_id}, {"taskId": task_id[:-1] + ("0" if task_id[-1] != "0" else "1")}):
            for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                more = {"inputResponses": {key: YES}} if method == "tasks/update" else {}
                with pytest.raises(Refused) as refused:
                    await mallory.request(method, {**params, **more})
                assert refused.value.code == -32602
                told.append(refused.value.message.replace(params["taskId"], "ID"))
        assert told[:3] == told[3:]
        assert (await alice.get(task_id))["status"] == "input_required"
        await alice.update(task_id, {key: YES})
        result = await alice.result(task_id)
        assert result["structuredContent"] == {"result": "alice ['read', 'write'] ''"}


async def test_a_body_finds_nothing_of_the_request_that_it_came_from() -> None:
    async with serving() as wire:
        alice = Caller(wire, headers=headers_of("alice"))
        result = await alice.result(await alice.start("look_around"))
        assert result["structuredContent"] == {"token": "", "authorization": None, "extensions": None}


async def test_a_caller_of_2025_lists_its_own_tasks_and_no_others() -> None:
    async with (
        serving() as wire,
        g1_http(wire, **headers_of("alice")) as hers,
        g1_http(wire, **headers_of("mallory")) as his,
        connected(hers) as alice,
        connected(his) as mallory,
    ):
        task_id = await alice.start("whoami")
        assert [task["taskId"] for task in (await alice.page())["tasks"]] == [task_id]
        assert (await mallory.page())["tasks"] == []
        with pytest.raises(Refused) as refused:
            await mallory.get(task_id)
        assert refused.value.code == -32602


async def test_a_caller_without_tasks_goes_on_with_its_own_tasks_and_no_others() -> None:
    async with serving() as wire:
        task_id = await Caller(wire, headers=headers_of("alice")).start("whoami")
        plain = Caller(wire, capabilities={}, headers=headers_of("mallory"))
        answer = await plain.call("task_status", {"task_id": task_id})
        assert answer["isError"]
        answer = await plain.call("task_status", {})
        assert task_id not in str(answer)


async def test_a_tool_that_a_caller_may_not_call_is_no_task_for_it_either() -> None:
    async with serving() as wire:
        alice, mallory = (Caller(wire, headers=headers_of(name)) for name in ("alice", "mallory"))
        assert (await alice.result(await alice.start("write")))["structuredContent"] == {"result": "written"}
        refused = await mallory.call("write")
        assert (refused["isError"], refused["content"][0]["text"]) == (True, "Unknown tool: 'write'")
