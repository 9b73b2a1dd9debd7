"""Tasks are attached to a server in one line, and do not affect anything else on it."""

from collections.abc import Sequence
from typing import Any

import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, ToolBinding
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolRequestParams, CallToolResult, RequestParams, TextContent

from raincheck import TaskContext, Tasks
from raincheck.errors import ConfigurationError
from tests.support.server.caller_v2026 import EXTENSION, Caller
from tests.support.server.example import ExampleServer
from tests.support.server.transports import in_memory

pytestmark = pytest.mark.anyio


async def add(a: int, b: int) -> int:
    return a + b


async def test_one_line_makes_an_mcp_server_serve_tasks() -> None:
    mcp = MCPServer("shop")
    tasks = Tasks(mcp, "memory:")
    tasks.tool(add)
    async with in_memory(mcp) as transport:
        caller = Caller(transport)
        discovered = await caller.request("server/discover")
        assert discovered["capabilities"]["extensions"][EXTENSION] == {}
        result = await caller.result(await caller.start("add", {"a": 1, "b": 2}))
        assert result["structuredContent"] == {"result": 3}


def test_tasks_are_attached_once() -> None:
    server = ExampleServer()
    with pytest.raises(ConfigurationError, match="'shop' has tasks already: attach them only once"):
        Tasks(server.mcp, "memory:")


def test_tasks_are_attached_to_a_server_and_nothing_else() -> None:
    with pytest.raises(ConfigurationError, match=r"attached to an MCPServer or a low-level Server .* not to 'shop'"):
        Tasks("shop")  # type: ignore[arg-type] # that is the point


def test_a_server_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"name the server, as in MCPServer.* or pass a namespace"):
        Tasks(MCPServer(), "memory:")


async def test_a_server_without_a_name_may_have_a_namespace() -> None:
    mcp = MCPServer()
    tasks = Tasks(mcp, "memory:", namespace="shop")
    tasks.tool(add)
    async with in_memory(mcp) as transport:
        caller = Caller(transport)
        task_id = await caller.start("add", {"a": 1, "b": 2})
        assert (await tasks.engine.view(task_id)).task.namespace == "shop"


async def test_tasks_are_stored_under_the_name_of_their_server() -> None:
    server = ExampleServer()
    server.tasks.tool(add)
    async with server.open() as caller:
        task_id = await caller.start("add", {"a": 1, "b": 2})
        assert (await server.tasks.engine.view(task_id)).task.namespace == "shop"


@pytest.mark.parametrize("namespace", ["a\0b", "x" * 1_000])
def test_an_invalid_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(ConfigurationError, match="a namespace"):
        Tasks(MCPServer("shop"), "memory:", namespace=namespace)


def test_a_refused_attachment_leaves_the_server_as_it_was() -> None:
    mcp = MCPServer("shop")
    with pytest.raises(ConfigurationError):
        Tasks(mcp, "memory:", namespace="a\0b")
    Tasks(mcp, "memory:")


def test_a_tool_of_a_name_that_is_taken_is_refused() -> None:
    server = ExampleServer()
    server.mcp.add_tool(add)
    with pytest.raises(ConfigurationError, match="already has a tool 'add': rename one of the two"):
        server.tasks.tool(add)


def test_a_task_tool_of_a_name_that_is_taken_is_refused() -> None:
    server = ExampleServer()
    server.tasks.tool(add)
    with pytest.raises(ConfigurationError, match="already has a tool 'add'"):
        server.tasks.tool(name="add")(add)


def test_a_function_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no name: pass the name of the tool as name="):
        ExampleServer().tasks.tool(lambda: 1)


@pytest.mark.parametrize("way", ["tool", "enable"])
def test_an_unknown_setting_is_refused_with_the_valid_ones(way: str) -> None:
    tasks = ExampleServer().tasks
    settings: dict[str, Any] = {"inline": 2}
    with pytest.raises(ConfigurationError, match=r"no setting 'inline': use one of .*inline_for.*timeout"):
        tasks.tool(**settings) if way == "tool" else tasks.enable("add", **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "maybe"}, "mode is"),
        ({"inline_for": 46}, "from 0 to 45"),
        ({"inline_for": float("nan")}, "inline_for is"),
        ({"inline_for": True}, "inline_for is"),
        ({"idempotency": 7}, "idempotency is"),
        ({"priority": 1_000}, "priority"),
        ({"isolation": "thread"}, "isolation"),
    ],
)
def test_an_invalid_setting_is_refused_when_the_tool_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ExampleServer().tasks.tool(**settings)(add)


@pytest.mark.parametrize("settings", [{"mode": "maybe"}, {"inline_for": 46}, {"priority": 1_000}, {"retry": 3}])
def test_an_invalid_setting_is_refused_when_a_tool_is_enabled(settings: dict[str, Any]) -> None:
    server = ExampleServer()
    server.mcp.add_tool(add)
    with pytest.raises(ConfigurationError):
        server.tasks.enable("add", **settings)


def test_a_refused_tool_leaves_its_name_free() -> None:
    server = ExampleServer()
    with pytest.raises(ConfigurationError):
        server.tasks.tool(task="maybe")(add)  # type: ignore[call-overload] # that is the point
    server.tasks.tool(add)


def test_the_engine_is_unavailable_while_the_server_does_not_run() -> None:
    with pytest.raises(ConfigurationError, match="are not running: start the server"):
        _ = ExampleServer().tasks.engine


async def test_tools_without_tasks_are_called_as_without_raincheck() -> None:
    server = ExampleServer()
    server.mcp.add_tool(add)
    async with server.open() as caller:
        result = await caller.call("add", {"a": 1, "b": 2})
        assert (result["resultType"], result["structuredContent"]) == ("complete", {"result": 3})


async def test_an_unknown_tool_is_answered_as_without_raincheck() -> None:
    async with ExampleServer().open() as caller:
        result = await caller.call("nothing")
    async with in_memory(MCPServer("shop", log_level="CRITICAL")) as transport:
        assert result == await Caller(transport).call("nothing")
    assert result["isError"] is True


async def test_a_tool_that_is_added_while_the_server_runs_is_served() -> None:
    server = ExampleServer()
    async with server.open() as caller:
        server.tasks.tool(add)
        result = await caller.result(await caller.start("add", {"a": 1, "b": 2}))
        assert result["structuredContent"] == {"result": 3}


async def test_a_tool_that_was_removed_is_unknown() -> None:
    server = ExampleServer()
    server.tasks.tool(add)
    async with server.open() as caller:
        await caller.start("add", {"a": 1, "b": 2})
        server.mcp.remove_tool("add")
        gone = await caller.call("add", {"a": 1, "b": 2})
        assert (gone["isError"], gone["content"][0]["text"]) == (True, "Unknown tool: add")


async def test_the_replacement_of_a_removed_tool_is_called() -> None:
    server = ExampleServer()
    server.tasks.tool(add)
    async with server.open() as caller:
        server.mcp.remove_tool("add")

        @server.mcp.tool(name="add")
        def another(words: str) -> str:
            return words.upper()

        result = await caller.call("add", {"words": "new"})
        assert (result["resultType"], result["structuredContent"]) == ("complete", {"result": "NEW"})


async def test_a_removed_tool_can_be_added_again_in_another_version() -> None:
    server = ExampleServer()
    server.tasks.tool(add)
    async with server.open() as caller:
        server.mcp.remove_tool("add")

        @server.tasks.tool(name="add", version="2")
        async def longer(words: str) -> str:
            return words * 2

        result = await caller.result(await caller.start("add", {"words": "ab"}))
        assert result["structuredContent"] == {"result": "abab"}


class Watching:
    """Middleware that writes down which methods it sees."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        self.seen.append(ctx.method)
        return await call_next(ctx)


@pytest.mark.parametrize("is_given_at_once", [True, False])
async def test_the_middleware_of_a_server_sees_calls_of_tasks(*, is_given_at_once: bool) -> None:
    watching = Watching()
    server = ExampleServer(server={"middleware": [watching]} if is_given_at_once else {})
    if not is_given_at_once:
        server.mcp.middleware.append(watching)
    server.tasks.tool(add)
    async with server.open() as caller:
        task_id = await caller.start("add", {"a": 1, "b": 2})
        await caller.result(task_id)
        await caller.cancel(task_id)
    requests = [method for method in watching.seen if not method.startswith("notifications/")]
    assert requests == ["tools/call", "subscriptions/listen", "tasks/get", "tasks/cancel"]


async def test_middleware_can_refuse_task_requests() -> None:
    async def refuse(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        return {"resultType": "complete", "content": []} if ctx.method == "tools/call" else await call_next(ctx)

    server = ExampleServer(server={"middleware": [refuse]})
    server.tasks.tool(add)
    async with server.open() as caller:
        assert (await caller.call("add", {"a": 1, "b": 2}))["resultType"] == "complete"


class Stamps(Extension):
    """Another extension, with a tool, a method, and a word in every call."""

    identifier = "example.org/stamps"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def settings(self) -> dict[str, Any]:
        return {"colours": 2}

    def tools(self) -> Sequence[ToolBinding]:
        async def stamp() -> str:
            return "stamped"

        return [ToolBinding(stamp)]

    def methods(self) -> Sequence[MethodBinding]:
        return [MethodBinding("stamps/count", RequestParams, self.count)]

    async def count(self, _: ServerRequestContext[Any, Any], __: RequestParams) -> HandlerResult:
        return {"count": len(self.calls)}

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        self.calls.append(params.name)
        if (params.arguments or {}).get("words") == "forbidden":
            return CallToolResult(content=[TextContent(text="not with me")], is_error=True)
        return await call_next(ctx)


def stamped_server() -> tuple[ExampleServer, Stamps]:
    stamps = Stamps()
    server = ExampleServer(server={"extensions": [stamps]})

    @server.tasks.tool()
    async def shout(words: str, task: TaskContext) -> str:
        assert task.is_task
        return words.upper()

    @server.mcp.tool()
    async def whisper(words: str) -> str:
        return words.lower()

    server.tasks.enable("whisper")
    return server, stamps


async def test_other_extensions_are_advertised_and_serve_their_tools_and_methods() -> None:
    server, _ = stamped_server()
    async with server.open() as caller:
        discovered = await caller.request("server/discover")
        assert discovered["capabilities"]["extensions"] == {EXTENSION: {}, "example.org/stamps": {"colours": 2}}
        assert (await caller.call("stamp"))["structuredContent"] == {"result": "stamped"}
        assert (await caller.request("stamps/count"))["count"] == 1


async def test_a_tool_of_another_extension_can_be_enabled() -> None:
    server, _ = stamped_server()
    server.tasks.enable("stamp")
    async with server.open() as caller:
        result = await caller.result(await caller.start("stamp"))
        assert result["structuredContent"] == {"result": "stamped"}


@pytest.mark.parametrize("tool", ["shout", "whisper"])
async def test_another_extension_that_intercepts_calls_sees_those_of_tasks_once(tool: str) -> None:
    server, stamps = stamped_server()
    async with server.open() as caller:
        await caller.result(await caller.start(tool, {"words": "Yes"}))
    assert stamps.calls == [tool]


@pytest.mark.parametrize("tool", ["shout", "whisper"])
async def test_another_extension_that_intercepts_a_call_can_answer_instead_of_the_tool(tool: str) -> None:
    server, _ = stamped_server()
    async with server.open() as caller:
        answer = await caller.call(tool, {"words": "forbidden"})
        result = await caller.result(answer["taskId"]) if answer["resultType"] == "task" else answer
        assert result["content"][0]["text"] == "not with me"
        assert result["isError"] is True


def test_another_extension_can_not_take_the_tasks_identifier() -> None:
    class Mine(Extension):
        identifier = EXTENSION

    with pytest.raises(ConfigurationError, match="has tasks already"):
        Tasks(MCPServer("shop", extensions=[Mine()]), "memory:")
