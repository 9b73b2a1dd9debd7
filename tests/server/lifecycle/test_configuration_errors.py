"""Invalid configuration is refused where it is made, with a message that names the remedy."""

# pyright: reportUnusedFunction=false

from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from raincheck import Owner, SyncTaskContext, TaskContext, Tasks
from raincheck.errors import ConfigurationError
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated, refusal

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": 7}, "named by a URL or a path"),
        ({"store": b"tasks.db"}, "named by a URL or a path"),
        ({"store": "mysql://localhost/tasks"}, "mysql"),
        ({"namespace": 7}, "namespace is a str"),
        ({"namespace": ""}, "namespace"),
        ({"settings": {"concurrency": 4}}, "settings is a Settings"),
        ({"settings": "fast"}, "settings is a Settings"),
        ({"works": "no"}, "works is a bool"),
        ({"works": None}, "works is a bool"),
        ({"owner": "alice"}, "owner is a function"),
        ({"owner": Owner.local()}, "owner is a function"),
    ],
    ids=str,
)
def test_invalid_options_are_refused_and_leave_the_server_unchanged(options: dict[str, Any], message: str) -> None:
    mcp: MCPServer[Any] = MCPServer("shop")
    with pytest.raises(ConfigurationError, match=message):
        Tasks(mcp, **options)
    Tasks(mcp, "memory:")


@pytest.mark.parametrize("empty", [{}, [], ""])
def test_empty_settings_are_not_taken_for_missing_ones(empty: Any) -> None:
    with pytest.raises(ConfigurationError, match="settings is a Settings"):
        Tasks(MCPServer("shop"), "memory:", settings=empty)


@pytest.mark.parametrize("reported", ["alice", 7, ("token", "alice"), b"alice"])
async def test_an_owner_function_that_returns_no_owner_refuses_the_request_and_reveals_nothing(reported: Any) -> None:
    def owner(_: object) -> Any:
        return reported

    server = ExampleServer(owner=owner)
    add_gated(server)
    async with server.open() as caller:
        refused = await refusal(caller, "tools/call", {"name": "gated", "arguments": {}})
        assert refused.code == -32603
        assert "alice" not in refused.message


async def test_a_coroutine_that_returns_no_owner_refuses_the_request_too() -> None:
    async def owner(_: object) -> Any:
        return "alice"

    server = ExampleServer(owner=owner)
    add_gated(server)
    async with server.open() as caller:
        refused = await refusal(caller, "tools/call", {"name": "gated", "arguments": {}})
        assert refused.code == -32603


def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize("what", [add, ["add"], ("add",), None, 7, ""])
def test_enable_takes_only_a_name_or_a_pattern(what: Any) -> None:
    server = ExampleServer()
    server.mcp.add_tool(add)
    with pytest.raises(ConfigurationError, match="takes the name of a tool, or a pattern"):
        server.tasks.enable(what)


def test_idempotency_that_names_no_argument_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"tool 'add' has no argument 'c', which its idempotency setting names"
    ):
        ExampleServer().tasks.tool(idempotency="c")(add)
    ExampleServer().tasks.tool(idempotency="a")(add)


def test_the_task_is_no_argument_that_idempotency_can_name() -> None:
    async def work(task: TaskContext) -> None: ...

    with pytest.raises(ConfigurationError, match="has no argument 'task'"):
        ExampleServer().tasks.tool(idempotency="task")(work)


@pytest.mark.parametrize("way", ["tool", "named", "bare", "enable"])
@pytest.mark.parametrize(
    "settings",
    [{"inline_for": -1}, {"mode": "maybe"}, {"idempotency": 7}, {"retry": 3}, {"timeout": "long"}, {"colour": "red"}],
    ids=str,
)
def test_errors_of_settings_name_the_tool(way: str, settings: dict[str, Any]) -> None:
    tasks = ExampleServer().tasks
    with pytest.raises(ConfigurationError, match="tool 'add'"):  # noqa: PT012 - one of them
        match way:
            case "tool":
                tasks.tool(add, **settings)  # type: ignore[call-overload] # an author may write it
            case "named":
                tasks.tool(name="add", **settings)
            case "bare":
                tasks.tool(name="add", **settings)(add)
            case _:
                tasks.enable("add", **settings)


def test_an_optional_task_parameter_is_refused() -> None:
    async def coroutine(task: TaskContext | None = None) -> None: ...

    def function(task: "SyncTaskContext | None" = None) -> None: ...

    namespace: dict[str, Any] = {}
    exec("async def unannotated(task): ...", namespace)  # noqa: S102 - an author may write it

    functions: list[Any] = [coroutine, function, namespace["unannotated"]]
    for fn in functions:
        with pytest.raises(ConfigurationError, match="annotate the parameter `task` as TaskContext"):
            ExampleServer().tasks.tool(fn)


async def test_an_argument_may_be_called_task() -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def describe(task: str) -> str:
        return task

    async with server.open() as caller:
        result = await caller.result(await caller.start("describe", {"task": "dig"}))
        assert result["content"][0]["text"] == "dig"


@pytest.mark.parametrize("name", ["raincheck_context", "raincheck_request"])
def test_reserved_names_are_refused_as_parameters(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"async def work({name}: int) -> int: return 1", namespace)  # noqa: S102 - a parameter by its name
    with pytest.raises(ConfigurationError, match=f"tool 'work': '{name}' is a reserved name"):
        ExampleServer().tasks.tool(namespace["work"])


def test_a_refusal_of_a_store_does_not_open_it(tmp_path: Path) -> None:
    Tasks(MCPServer("shop"), tmp_path / "tasks.db", settings=QUICK)
    assert list(tmp_path.iterdir()) == []
