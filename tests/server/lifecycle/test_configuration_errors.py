"""What is put together wrongly is refused where that is done, in words that say what to do."""

# pyright: reportUnusedFunction=false

from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from raincheck import Owner, SyncTaskContext, TaskContext, Tasks
from raincheck.errors import ConfigurationError
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import add_gated, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


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
def test_what_tasks_can_not_be_attached_with_is_refused_and_the_server_stays_as_it_was(
    options: dict[str, Any], message: str
) -> None:
    mcp: MCPServer[Any] = MCPServer("shop")
    with pytest.raises(ConfigurationError, match=message):
        Tasks(mcp, **options)
    Tasks(mcp, "memory:")


@pytest.mark.parametrize("empty", [{}, [], ""])
def test_settings_that_are_empty_are_not_taken_for_none(empty: Any) -> None:
    with pytest.raises(ConfigurationError, match="settings is a Settings"):
        Tasks(MCPServer("shop"), "memory:", settings=empty)


@pytest.mark.parametrize("told", ["alice", 7, ("token", "alice"), b"alice"])
async def test_an_owner_function_that_returns_no_owner_refuses_the_request_and_tells_nothing(told: Any) -> None:
    def owner(_: object) -> Any:
        return told

    shop = Shop(owner=owner)
    add_gated(shop)
    async with shop.open() as caller:
        refused = await refusal(caller, "tools/call", {"name": "gated", "arguments": {}})
        assert refused.code == -32603
        assert "alice" not in refused.message


async def test_a_coroutine_that_returns_no_owner_refuses_the_request_too() -> None:
    async def owner(_: object) -> Any:
        return "alice"

    shop = Shop(owner=owner)
    add_gated(shop)
    async with shop.open() as caller:
        refused = await refusal(caller, "tools/call", {"name": "gated", "arguments": {}})
        assert refused.code == -32603


def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize("what", [add, ["add"], ("add",), None, 7, ""])
def test_enable_takes_a_name_and_nothing_else(what: Any) -> None:
    shop = Shop()
    shop.mcp.add_tool(add)
    with pytest.raises(ConfigurationError, match="takes the name of a tool, or a pattern"):
        shop.tasks.enable(what)


def test_idempotency_that_names_no_argument_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"tool 'add': idempotency names an argument, and it has no 'c'"):
        Shop().tasks.tool(idempotency="c")(add)
    Shop().tasks.tool(idempotency="a")(add)


def test_the_task_is_no_argument_that_idempotency_can_name() -> None:
    async def work(task: TaskContext) -> None: ...

    with pytest.raises(ConfigurationError, match="it has no 'task'"):
        Shop().tasks.tool(idempotency="task")(work)


@pytest.mark.parametrize("way", ["tool", "named", "bare", "enable"])
@pytest.mark.parametrize(
    "settings",
    [{"inline_for": -1}, {"mode": "maybe"}, {"idempotency": 7}, {"retry": 3}, {"timeout": "long"}, {"colour": "red"}],
    ids=str,
)
def test_errors_of_settings_name_the_tool(way: str, settings: dict[str, Any]) -> None:
    tasks = Shop().tasks
    with pytest.raises(ConfigurationError, match="tool 'add'"):  # noqa: PT012 - one of them
        match way:
            case "tool":
                tasks.tool(add, **settings)  # type: ignore[call-overload] # as somebody may write it
            case "named":
                tasks.tool(name="add", **settings)
            case "bare":
                tasks.tool(name="add", **settings)(add)
            case _:
                tasks.enable("add", **settings)


def test_a_task_that_may_be_none_is_told_to_be_one() -> None:
    async def coroutine(task: TaskContext | None = None) -> None: ...

    def function(task: "SyncTaskContext | None" = None) -> None: ...

    namespace: dict[str, Any] = {}
    exec("async def unannotated(task): ...", namespace)  # noqa: S102 - as somebody may write it

    functions: list[Any] = [coroutine, function, namespace["unannotated"]]
    for fn in functions:
        with pytest.raises(ConfigurationError, match="annotate the parameter `task` as TaskContext"):
            Shop().tasks.tool(fn)


async def test_an_argument_may_be_called_task() -> None:
    shop = Shop()

    @shop.tasks.tool
    async def describe(task: str) -> str:
        return task

    async with shop.open() as caller:
        result = await caller.result(await caller.start("describe", {"task": "dig"}))
        assert result["content"][0]["text"] == "dig"


@pytest.mark.parametrize("name", ["raincheck_context", "raincheck_request"])
def test_our_own_names_are_refused_as_parameters(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"async def work({name}: int) -> int: return 1", namespace)  # noqa: S102 - a parameter by its name
    with pytest.raises(ConfigurationError, match=f"tool 'work': '{name}' is our own name"):
        Shop().tasks.tool(namespace["work"])


def test_a_refusal_of_a_store_does_not_open_it(tmp_path: Path) -> None:
    Tasks(MCPServer("shop"), tmp_path / "tasks.db", settings=QUICK)
    assert list(tmp_path.iterdir()) == []
