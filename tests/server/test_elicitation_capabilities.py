"""A body can check which input its caller supports, and unsupported input is refused."""

# pyright: reportUnusedFunction=false

from typing import Any

import pytest
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.mcpserver import Context
from mcp_types import (
    ClientCapabilities,
    ElicitationCapability,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    FormElicitationCapability,
    RootsCapability,
    SamplingCapability,
    SamplingToolsCapability,
    UrlElicitationCapability,
)

from raincheck import Owner, TaskContext
from raincheck.core.records import InputKind
from raincheck.core.values import encode
from raincheck.engine.inputs import check_capability
from raincheck.errors import ToolError
from tests.server.test_owners import bearing, make_with_tokens, serving
from tests.support.server.caller_v2026 import TASKS
from tests.support.server.example import ExampleServer
from tests.support.server.tools import text_of

pytestmark = pytest.mark.anyio

FORM = ClientCapabilities(elicitation=ElicitationCapability(form=FormElicitationCapability()))
URL = ClientCapabilities(elicitation=ElicitationCapability(url=UrlElicitationCapability()))
ANY = ClientCapabilities(elicitation=ElicitationCapability())
TOOLS = ClientCapabilities(sampling=SamplingCapability(tools=SamplingToolsCapability()))
CHANGES = ClientCapabilities(roots=RootsCapability(list_changed=True))


@pytest.mark.parametrize(
    ("declared", "wanted", "has_it"),
    [
        ({"elicitation": {"form": {}}}, FORM, True),
        ({"elicitation": {"form": {}}}, URL, False),
        ({"elicitation": {"form": {}, "url": {}}}, URL, True),
        ({"elicitation": {"form": {}}}, ANY, True),
        ({"sampling": {}}, TOOLS, False),
        ({"sampling": {"tools": {}}}, TOOLS, True),
        ({"sampling": {"tools": {}}}, FORM, False),
        ({"roots": {"listChanged": True}}, CHANGES, True),
        ({"roots": {"listChanged": False}}, CHANGES, False),
        ({"roots": {}}, CHANGES, False),
        ({}, ANY, False),
        ({}, ClientCapabilities(), True),
    ],
    ids=str,
)
async def test_a_body_can_check_nested_capabilities_of_its_caller(
    declared: dict[str, Any],
    wanted: ClientCapabilities,
    has_it: bool,
) -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def look(ctx: Context[Any, Any]) -> bool:
        return ctx.session.check_client_capability(wanted)

    async with server.open(capabilities={**TASKS, **declared}) as caller:
        result = await caller.result(await caller.start("look"))
        assert result["structuredContent"] == {"result": has_it}


@pytest.mark.parametrize(
    ("declared", "mode", "missing"),
    [
        ({"form": {}}, "form", None),
        ({"form": {}}, "url", "elicitation.url"),
        ({"url": {}}, "url", None),
        ({"url": {}}, "form", "elicitation.form"),
        ({"url": {}}, None, "elicitation.form"),
        ({"form": {}, "url": {}}, "url", None),
        ({}, "form", None),
        ({}, None, None),
        ({}, "url", "elicitation.url"),
        (None, "form", "elicitation"),
    ],
)
def test_a_question_uses_a_mode_that_the_caller_supports(
    declared: dict[str, Any] | None, mode: str | None, missing: str | None
) -> None:
    capabilities = {} if declared is None else {"elicitation": declared}
    caller = encode({"capabilities": capabilities})
    request = {"message": "?"} | ({} if mode is None else {"mode": mode})
    if missing is None:
        check_capability(caller, InputKind.ELICITATION, request)
        return
    with pytest.raises(ToolError) as refused:
        check_capability(caller, InputKind.ELICITATION, request)
    assert str(refused.value).endswith(f"did not declare the capability {missing}")


@pytest.mark.parametrize("caller", [None, encode(None), encode({}), encode({"capabilities": None}), encode("?")])
def test_without_a_caller_every_mode_is_allowed(caller: Any) -> None:
    for kind in InputKind:
        check_capability(caller, kind, {"mode": "url"})


@pytest.mark.parametrize("kind", [InputKind.SAMPLING, InputKind.ROOTS])
def test_other_questions_need_their_capability_and_no_mode(kind: InputKind) -> None:
    check_capability(encode({"capabilities": {str(kind): {}}}), kind, {"mode": "url"})
    with pytest.raises(ToolError, match=f"capability {kind}"):
        check_capability(encode({"capabilities": {"elicitation": {}}}), kind, {})


async def test_metadata_of_an_sdk_request_is_not_stored_with_its_question() -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def ask(ctx: Context[Any, Any]) -> str:
        params = ElicitRequestFormParams.model_validate(
            {"message": "Sure?", "requestedSchema": {"type": "object"}, "_meta": {"progressToken": "mine"}}
        )
        return (await ctx.session.send_request(ElicitRequest(params=params), ElicitResult)).action

    async with server.open() as caller:
        task_id = await caller.start("ask")
        task = await caller.until(task_id, "input_required")
        (request,) = task["inputRequests"].values()
        assert request["params"]["message"] == "Sure?"
        assert "_meta" not in request["params"]
        await caller.update(task_id, {key: {"action": "decline"} for key in task["inputRequests"]})
        assert text_of(await caller.result(task_id)) == "decline"


async def test_a_tool_called_by_an_ordinary_tool_is_a_task_of_the_original_caller() -> None:
    server = make_with_tokens()
    ids: list[str] = []

    @server.tasks.tool
    async def inner(task: TaskContext) -> str:
        ids.append(task.id)
        token = get_access_token()
        return "nobody" if token is None else str(token.subject)

    @server.mcp.tool()
    async def outer(ctx: Context[Any, Any]) -> str:
        result: Any = await ctx.mcp_server.call_tool("inner", {}, ctx)
        return result.content[0].text

    async with serving(server) as transport:
        assert text_of(await bearing(transport, "alice").call("outer")) == "alice"
        assert text_of(await bearing(transport, "mallory").call("outer")) == "mallory"
        alice = Owner.token("https://a.example", "alice")
        assert (await server.tasks.engine.task(ids[0], owner=alice)).tool.name == "inner"
        assert (await bearing(transport, "alice").get(ids[0]))["status"] == "completed"
        # Outside any request it is the program's own.
        result: Any = await server.mcp.call_tool("inner", {})
        assert result.content[0].text == "nobody"
        assert (await server.tasks.engine.task(ids[2])).owner == Owner.local()
