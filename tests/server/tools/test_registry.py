"""A tool of `Tasks` is listed, called and answered like one of the SDK, except that its calls become tasks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from mcp.server.mcpserver import Context, Icon, Image, MCPServer
from mcp.server.mcpserver.resolve import Resolve
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from raincheck import RetryPolicy, SyncTaskContext, TaskContext
from raincheck.errors import ConfigurationError
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.transports import in_memory

pytestmark = pytest.mark.anyio

NO_RETRY = RetryPolicy(attempts=1)


class Book(BaseModel):
    """A book."""

    title: str
    pages: int = Field(default=100, ge=1, alias="pageCount")


@dataclass
class Shelf:
    name: str
    width: int = 80


class Label(TypedDict):
    text: str


def repeat_words(words: str, times: int = 1) -> str:
    """Say something."""
    return words * times


async def described(
    year: Annotated[int, Field(description="Which year", ge=1900)],
    kind: Literal["short", "long"] = "short",
    note: str | None = None,
    tags: list[str] = Field(default_factory=list, title="Tags"),  # noqa: B008 - as the SDK's users write it
) -> dict[str, int]:
    return {f"{kind} {note} {tags}": year}


def names_of_pydantic(copy: int, schema: str, json: str = "{}") -> str:
    return f"{copy} {schema} {json}"


def aliased(words: str = Field(alias="theWords")) -> str:
    return words


async def with_models(book: Book, shelf: Shelf, labels: list[Label]) -> Book:
    """Models in, a model out."""
    return Book(title=f"{book.title}, {shelf.name}, {labels[0]['text']}", pageCount=book.pages)


def seven() -> int:
    return 7


def resolved(words: str, number: Annotated[int, Resolve(seven)], ctx: Context[Any, Any]) -> Label:
    return {"text": f"{words} {number} {ctx.request_id}"}


def nothing() -> None:
    pass


def without_annotations(a, b=2):  # type: ignore[no-untyped-def] # pyright: ignore[reportUnknownParameterType, reportMissingParameterType] - that is the point
    return [a, b]  # pyright: ignore[reportUnknownVariableType]


def shelf_of(name: str) -> Shelf:
    return Shelf(name)


FULL: dict[str, Any] = {
    "name": "another name",
    "title": "A title",
    "description": "Described elsewhere.",
    "annotations": ToolAnnotations(title="Hint", read_only_hint=True, open_world_hint=False),
    "icons": [Icon(src="https://example.org/icon.png", mime_type="image/png", sizes=["48x48"])],
    "meta": {"example.org/colour": "red"},
}

LISTED: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (repeat_words, {}),
    (repeat_words, FULL),
    (repeat_words, {"structured_output": False}),
    (described, {}),
    (described, {"structured_output": True}),
    (names_of_pydantic, {}),
    (aliased, {}),
    (with_models, {}),
    (resolved, {}),
    (nothing, {}),
    (without_annotations, {}),
    (shelf_of, {}),
]


async def listing(mcp: MCPServer[Any]) -> Any:
    async with in_memory(mcp) as transport:
        return (await Caller(transport).request("tools/list"))["tools"]


@pytest.mark.filterwarnings("ignore:Tool name")
@pytest.mark.parametrize(("fn", "options"), LISTED)
async def test_a_tool_is_listed_as_the_sdks_own_would_be(fn: Callable[..., Any], options: dict[str, Any]) -> None:
    plain_server = MCPServer[Any]("shop")
    plain_server.tool(**options)(fn)
    server = ExampleServer()
    assert server.tasks.tool(**options)(fn) is fn
    listed = await listing(server.mcp)
    assert listed == await listing(plain_server)
    assert len(listed) == 1


async def test_the_task_is_not_among_the_arguments() -> None:
    async def with_task(words: str, task: TaskContext, times: int = 1) -> str:
        """Say something."""
        return f"{words}{times}{task.id}"

    def with_sync_task(task: SyncTaskContext, words: str, times: int = 1) -> str:
        """Say something."""
        return f"{words}{times}{task.id}"

    plain_server = MCPServer[Any]("shop")
    plain_server.add_tool(repeat_words, name="one")
    for fn in (with_task, with_sync_task):
        server = ExampleServer()
        server.tasks.tool(name="one")(fn)
        (listed,), (other,) = await listing(server.mcp), await listing(plain_server)
        for schema in (
            listed["inputSchema"],
            other["inputSchema"],
            listed["outputSchema"],
            other["outputSchema"],
        ):
            del schema["title"]  # the name of the function
        assert listed == other


async def both_ways(fn: Callable[..., Any], arguments: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    """Return the results of a call that is a task, and of the same call of the SDK's own tool."""
    plain_server = MCPServer[Any]("shop", log_level="CRITICAL")
    plain_server.tool(name="it", **options)(fn)
    server = ExampleServer()
    server.tasks.tool(name="it", **options)(fn)
    async with server.open() as caller, in_memory(plain_server) as transport:
        other = await Caller(transport).call("it", arguments)
        answer = await caller.call("it", arguments)
        result = await caller.result(answer["taskId"]) if answer["resultType"] == "task" else answer
    for one in (result, other):
        one.get("_meta", {}).pop("io.modelcontextprotocol/serverInfo", None)
        if not one.get("_meta"):
            one.pop("_meta", None)
        one.pop("resultType", None)
    return result, other


ARGUMENTS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (repeat_words, {"words": "ab", "times": 3}),
    (repeat_words, {"words": "ab", "times": "3"}),
    (described, {"year": 2026, "note": None, "tags": ["a", "b"]}),
    (described, {"year": 2026, "tags": '["from a string"]'}),
    (with_models, {"book": {"title": "Emma", "pageCount": 7}, "shelf": {"name": "A"}, "labels": [{"text": "t"}]}),
    (with_models, {"book": '{"title": "Emma"}', "shelf": '{"name": "A"}', "labels": '[{"text": "t"}]'}),
    (without_annotations, {"a": {"x": [1, None]}}),
    (names_of_pydantic, {"copy": 1, "schema": "s"}),
]


@pytest.mark.parametrize(("fn", "arguments"), ARGUMENTS)
async def test_arguments_arrive_as_the_sdk_would_pass_them(fn: Callable[..., Any], arguments: Any) -> None:
    task_result, sdk_result = await both_ways(fn, arguments)
    assert task_result == sdk_result
    assert "isError" not in task_result or task_result["isError"] is False


@pytest.mark.parametrize(
    ("fn", "arguments"),
    [
        (repeat_words, {}),
        (repeat_words, {"words": "ab", "times": "many"}),
        (described, {"year": 3}),
        (described, {"year": 2026, "kind": "medium"}),
        (with_models, {"book": {}, "shelf": {"name": "A"}, "labels": []}),
    ],
)
async def test_bad_arguments_get_the_sdks_error_and_make_no_task(
    fn: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    server = ExampleServer()
    server.tasks.tool(name="it")(fn)
    async with server.open() as caller:
        assert (await caller.call("it", arguments))["resultType"] == "complete"
    task_result, sdk_result = await both_ways(fn, arguments)
    assert task_result == sdk_result
    assert task_result["isError"] is True


async def test_arguments_that_a_tool_does_not_know_are_ignored_as_the_sdk_does() -> None:
    task_result, sdk_result = await both_ways(repeat_words, {"words": "ab", "unknown": 1})
    assert task_result == sdk_result
    assert task_result["structuredContent"] == {"result": "ab"}


async def test_a_validator_that_crashes_gets_the_sdks_error_and_makes_no_task() -> None:
    def crash() -> int:
        raise RuntimeError("secret")

    def broken(number: int = Field(default_factory=crash)) -> int:
        return number

    task_result, sdk_result = await both_ways(broken, {})
    assert task_result == sdk_result
    assert "secret" not in str(task_result)


def returns_text() -> str:
    return "text"


def returns_number() -> int:
    return 5


def returns_dict() -> dict[str, list[int]]:
    return {"a": [1]}


def returns_model() -> Book:
    return Book(title="Emma")


def returns_dataclass() -> Shelf:
    return Shelf("A")


def returns_typed_dict() -> Label:
    return {"text": "a"}


def returns_list() -> list[int]:
    return [1, 2]


def returns_image() -> Image:
    return Image(data=b"png", format="png")


def returns_mixed() -> list[str | Image]:
    return ["words", Image(data=b"png", format="png")]


def returns_block() -> TextContent:
    return TextContent(text="block")


def returns_result() -> CallToolResult:
    return CallToolResult(content=[TextContent(text="mine")], _meta={"example.org/x": 1})


def returns_checked_result() -> Annotated[CallToolResult, Label]:
    return CallToolResult(content=[], structured_content={"text": "checked"})


def returns_error() -> CallToolResult:
    return CallToolResult(content=[TextContent(text="bad")], is_error=True, _meta={"example.org/x": 1})


RETURNS = [fn for name, fn in list(globals().items()) if name.startswith("returns_")]


@pytest.mark.parametrize("fn", [*RETURNS, nothing])
async def test_a_result_is_what_the_sdk_would_make_of_it(fn: Callable[..., Any]) -> None:
    task_result, sdk_result = await both_ways(fn, {})
    assert task_result == sdk_result


@pytest.mark.parametrize("fn", RETURNS)
async def test_a_result_of_a_coroutine_is_the_same(fn: Callable[..., Any]) -> None:
    async def it() -> Any:
        return fn()

    it.__annotations__["return"] = fn.__annotations__["return"]
    task_result, sdk_result = await both_ways(it, {})
    assert task_result == sdk_result


async def test_a_result_that_does_not_fit_its_schema_is_not_sent() -> None:
    def liar() -> int:
        return "secret"  # type: ignore[return-value] # that is the point

    server = ExampleServer()
    server.tasks.tool(retry=NO_RETRY)(liar)
    async with server.open() as caller:
        task = await caller.until(await caller.start("liar"))
        assert task["status"] == "failed"
        assert "secret" not in str(task)


def makers() -> dict[str, Callable[..., Any]]:
    """Functions of every kind, each with a task."""

    async def coroutine(words: str, task: TaskContext) -> str:
        return f"{words} {task.attempt}"

    def function(words: str, task: SyncTaskContext) -> str:
        return f"{words} {task.attempt}"

    class CallableCoroutine:
        async def __call__(self, words: str, task: TaskContext) -> str:
            return await coroutine(words, task)

    class CallableFunction:
        def __call__(self, words: str, task: SyncTaskContext) -> str:
            return function(words, task)

    class Holder:
        async def method(self, words: str, task: TaskContext) -> str:
            return await coroutine(words, task)

    async def three(prefix: str, words: str, task: TaskContext) -> str:
        return await coroutine(prefix + words, task)

    return {
        "coroutine": coroutine,
        "function": function,
        "callable coroutine": CallableCoroutine(),
        "callable function": CallableFunction(),
        "method": Holder().method,
        "partial coroutine": partial(three, ""),
        "partial function": partial(function),
    }


@pytest.mark.parametrize("kind", list(makers()))
async def test_any_kind_of_function_can_be_a_tool_and_take_its_task(kind: str) -> None:
    server = ExampleServer()
    server.tasks.tool(name="it")(makers()[kind])
    async with server.open() as caller:
        result = await caller.result(await caller.start("it", {"words": "attempt"}))
        assert result["content"][0]["text"] == "attempt 1"


async def test_a_plain_function_does_not_block_the_event_loop() -> None:
    server = ExampleServer()
    meet = asyncio.Event()
    loop = asyncio.get_running_loop()

    @server.tasks.tool
    def wait() -> bool:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(meet.wait(), 20), loop).result()

    async with server.open() as caller:
        task_id = await caller.start("wait")
        assert (await caller.get(task_id))["status"] == "working"
        meet.set()
        assert (await caller.result(task_id))["structuredContent"] == {"result": True}


def test_a_function_that_takes_the_wrong_context_is_refused() -> None:
    def function(task: TaskContext) -> None:
        del task

    with pytest.raises(ConfigurationError, match="make it a SyncTaskContext"):
        ExampleServer().tasks.tool(function)


def test_a_generator_is_refused() -> None:
    async def generator():
        yield 1

    with pytest.raises(ConfigurationError, match="a single result: return it"):
        ExampleServer().tasks.tool(generator)


def test_a_signature_that_can_not_be_read_is_refused_with_the_tools_name() -> None:
    def broken(a: int) -> None:
        del a

    broken.__annotations__["a"] = "Missing"

    with pytest.raises(ConfigurationError, match=r"signature of tool 'broken'.*Missing"):
        ExampleServer().tasks.tool(broken)
