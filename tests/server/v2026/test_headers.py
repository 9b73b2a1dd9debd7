"""HTTP headers by which proxies route must agree with the body of the request."""

import base64
from typing import Any

import pytest

from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated, refusal
from tests.support.server.transports import HttpTransport

pytestmark = pytest.mark.anyio

METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]


def new_server() -> ExampleServer:
    server = ExampleServer(works=False)
    add_gated(server)
    return server


def last_status(caller: Caller) -> int:
    assert isinstance(caller.transport, HttpTransport)
    return caller.transport.last_status


def about(task_id: str) -> dict[str, Any]:
    return {"taskId": task_id, "inputResponses": {}}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("headers-accepted")
async def test_headers_that_agree_with_the_body_change_nothing(method: str) -> None:
    async with new_server().open_http() as caller:
        task_id = await caller.start("gated")
        answer = await caller.request(method, about(task_id), headers={"mcp-method": method, "mcp-name": task_id})
        assert answer["resultType"] == "complete"
        assert last_status(caller) == 200


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("headers-accepted")
async def test_a_name_may_come_encoded(method: str) -> None:
    async with new_server().open_http() as caller:
        task_id = await caller.start("gated")
        encoded = f"=?base64?{base64.b64encode(task_id.encode()).decode()}?="
        await caller.request(method, about(task_id), headers={"mcp-name": encoded})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("headers-name-mismatch", "standard-errors")
async def test_a_request_about_another_task_than_its_header_names_is_refused(method: str) -> None:
    async with new_server().open_http() as caller:
        task_id, other = await caller.start("gated"), await caller.start("gated")
        before = await caller.get(task_id)
        # Whether the one in the header exists makes no difference.
        for name in (other, "unknown", task_id.upper(), task_id[:-1], "", "=?base64?%%%?="):
            refused = await refusal(caller, method, about(task_id), headers={"mcp-name": name})
            assert refused.code == -32020
            assert "mcp-name" in refused.message.lower()
            assert last_status(caller) == 400
        for unchanged in (task_id, other):
            assert (await caller.get(unchanged))["status"] == "working"
        assert (await caller.get(task_id))["lastUpdatedAt"] == before["lastUpdatedAt"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("headers-name-mismatch")
async def test_a_request_without_the_header_is_refused(method: str) -> None:
    async with new_server().open_http() as caller:
        task_id = await caller.start("gated")
        nameless = Nameless(caller.transport)
        refused = await refusal(nameless, method, about(task_id))
        assert (refused.code, last_status(caller)) == (-32020, 400)
        assert (await caller.get(task_id))["status"] == "working"


class Nameless(Caller):
    def routing(self, message: dict[str, Any]) -> dict[str, str]:
        return {name: value for name, value in super().routing(message).items() if name != "mcp-name"}


@pytest.mark.requirement("headers-method-mismatch")
@pytest.mark.parametrize("method", METHODS)
async def test_a_request_of_another_method_than_its_header_names_is_refused(method: str) -> None:
    async with new_server().open_http() as caller:
        task_id = await caller.start("gated")
        for named in ("tools/call", *(one for one in METHODS if one != method)):
            refused = await refusal(caller, method, about(task_id), headers={"mcp-method": named})
            assert (refused.code, last_status(caller)) == (-32020, 400)
        assert (await caller.get(task_id))["status"] == "working"


@pytest.mark.requirement("headers-tolerated-on-call")
async def test_a_call_with_the_right_headers_is_answered_with_its_task() -> None:
    async with new_server().open_http() as caller:
        headers = {"mcp-method": "tools/call", "mcp-name": "gated"}
        created = await caller.request("tools/call", {"name": "gated", "arguments": {}}, headers=headers)
        assert created["resultType"] == "task"
        assert last_status(caller) == 200


@pytest.mark.requirement("headers-name-mismatch")
async def test_a_call_of_another_tool_than_its_header_names_makes_no_task() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open_http() as caller:
        params: dict[str, Any] = {"name": "gated", "arguments": {}}
        assert (await refusal(caller, "tools/call", params, headers={"mcp-name": "other"})).code == -32020
        task_id = await caller.start("gated")
        gate.open.set()
        await caller.result(task_id)
        assert gate.task_ids == [task_id]
