"""The server advertises the extension, and callers must declare it with each request."""

from typing import Any

import pytest

from tests.support.server.caller_v2026 import EXTENSION, TASKS, Caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import LEGACY, NO_TASKS, ON_BOTH_TRANSPORTS, add_gated, refusal, without_tasks
from tests.support.server.transports import HttpTransport

OLD = "2025-06-18"
"""A version that knows no tasks at all."""

pytestmark = pytest.mark.anyio

METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
MISSING = (-32021, {"requiredCapabilities": TASKS})


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("extension-advertised", "legacy-capability-not-advertised")
async def test_discovery_lists_the_extension_and_not_the_older_capability(way: str) -> None:
    server = ExampleServer()
    add_gated(server)
    async with server.open_by(way) as caller:
        capabilities = (await caller.request("server/discover"))["capabilities"]
        assert capabilities["extensions"] == {EXTENSION: {}}
        assert "tasks" not in capabilities


async def test_tools_are_listed_without_fields_of_2025_tasks() -> None:
    server = ExampleServer()
    add_gated(server, mode="required")
    async with server.open() as caller:
        (tool,) = (await caller.request("tools/list"))["tools"]
        assert tool["name"] == "gated"
        assert "execution" not in tool
        # The task is not among the arguments.
        assert tool["inputSchema"].get("properties", {}) == {}


@pytest.mark.parametrize("capabilities", [{}, NO_TASKS, LEGACY, {"extensions": {}}, {"extensions": {"other/one": {}}}])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("methods-need-declaration", "missing-capability-data", "legacy-capability-counts-as-none")
async def test_the_methods_of_tasks_are_refused_to_a_caller_that_does_not_declare_the_extension(
    method: str, capabilities: dict[str, Any]
) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        undeclared = without_tasks(caller, capabilities)
        params: dict[str, Any] = {"taskId": task_id, "inputResponses": {}}
        refused = await refusal(undeclared, method, params)
        assert (refused.code, refused.data) == MISSING
        assert EXTENSION in refused.message
        # It does not reveal whether there is such a task.
        unknown = await refusal(undeclared, method, {**params, "taskId": "unknown"})
        assert (unknown.code, unknown.message, unknown.data) == (refused.code, refused.message, refused.data)
        assert (await caller.get(task_id))["status"] == "working"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.requirement("methods-need-declaration")
async def test_over_http_a_missing_capability_is_a_bad_request(method: str) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open_http() as caller:
        task_id = await caller.start("gated")
        refused = await refusal(without_tasks(caller), method, {"taskId": task_id, "inputResponses": {}})
        assert (refused.code, refused.data) == MISSING
        assert isinstance(caller.transport, HttpTransport)
        assert caller.transport.last_status == 400


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("methods-need-declaration", "create-needs-declaration", "per-request-opt-in")
async def test_what_was_declared_with_one_request_does_not_count_for_the_next(way: str) -> None:
    server = ExampleServer()
    add_gated(server).open.set()
    async with server.open_by(way) as caller:
        undeclared = without_tasks(caller)
        for _ in range(2):
            task_id = await caller.start("gated")
            assert (await refusal(undeclared, "tasks/get", {"taskId": task_id})).code == -32021
            assert (await undeclared.call("gated"))["resultType"] == "complete"
            assert (await caller.until(task_id))["status"] == "completed"


async def test_unknown_settings_of_the_extension_are_ignored() -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open(capabilities={"extensions": {EXTENSION: {"later": [1]}}}) as caller:
        await caller.get(await caller.start("gated"))


@ON_BOTH_TRANSPORTS
@pytest.mark.parametrize("method", ["tasks/result", "tasks/list", "tasks/delete", "tasks/"])
@pytest.mark.requirement("tasks-result-removed", "tasks-list-removed", "standard-errors")
async def test_methods_of_the_older_tasks_do_not_exist(method: str, way: str) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("gated")
        for one in (caller, without_tasks(caller, LEGACY)):
            assert (await refusal(one, method, {"taskId": task_id})).code == -32601
            if isinstance(caller.transport, HttpTransport):
                assert caller.transport.last_status == 404


@pytest.mark.parametrize("method", METHODS)
async def test_the_methods_of_the_extension_do_not_exist_in_the_older_protocol(method: str) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        async with server.open() as connected:
            old = await initialized(connected)
            refused = await refusal(old, method, {"taskId": task_id, "inputResponses": {}})
            assert refused.code == -32601


async def test_a_caller_of_the_older_protocol_gets_results_and_is_refused_what_runs_only_as_a_task() -> None:
    server = ExampleServer()
    add_gated(server).open.set()
    add_gated(server, "alone", mode="required")
    async with server.open() as connected:
        old = await initialized(connected)
        for params in ({"name": "gated"}, {"name": "gated", "task": {"ttl": 1_000}}):
            (answer,) = [one async for one in old.transport.exchange(old.message("tools/call", params), {})]
            assert answer["result"]["content"] == [{"type": "text", "text": "through"}]
            assert "taskId" not in str(answer)
        refused = await refusal(old, "tools/call", {"name": "alone", "task": {}})
        assert refused.code == -32601
        assert "alone" in refused.message


class OldCaller(Caller):
    """Speaks the protocol of 2025: nothing is declared with a request."""

    def message(self, method: str, params: Any = None, meta: Any = None) -> dict[str, Any]:
        message = super().message(method, params, meta)
        del message["params"]["_meta"]
        return message


async def initialized(caller: Caller) -> Caller:
    old = OldCaller(caller.transport)
    hello = {"protocolVersion": OLD, "capabilities": LEGACY, "clientInfo": {"name": "old", "version": "1"}}
    message = old.message("initialize", hello)
    (answer,) = [one async for one in old.transport.exchange(message, {})]
    assert answer["result"]["protocolVersion"] == OLD
    assert "tasks" not in answer["result"]["capabilities"]
    return old
