"""The tools of a FastMCP server, in the words of the SDK.

FastMCP finds a tool by asking its providers, which takes a while, and may find another for each caller. What is seen of
them is noted here, for those who can't wait: whether there is such a tool, and how its arguments are read.

How tools are listed to FastMCP's own client, which makes values of what they return by their output schema.

Callers without tasks are told that the output of a tool may be a task instead. To that client, a schema of two kinds is
just an object, so the properties of the first kind are said once more, where it looks for them.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, cast

from fastmcp.server.dependencies import without_injected_parameters
from fastmcp.tools import FunctionTool, Tool
from fastmcp.utilities.versions import version_sort_key
from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from pydantic import TypeAdapter
from pydantic_core import to_json

from raincheck.fastmcp.body import AnyFastMCP
from raincheck.server.sdk_compat import AnyContext, fields_of
from raincheck.wire.fallback_tool_list import TASK_SCHEMA


async def keep_shapes(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
    """Middleware around what lists tools to callers without tasks."""
    result = await call_next(ctx)
    if ctx.method != "tools/list":
        return result
    page = fields_of(result)
    return page | {"tools": [_with_shape(tool) for tool in page.get("tools", ())]}


def _with_shape(tool: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = tool.get("outputSchema") or {}
    kinds: list[Any] = schema.get("anyOf") or []
    if len(kinds) != 2 or kinds[1] != TASK_SCHEMA:
        return tool
    return {**tool, "outputSchema": {**_shape_of(kinds[0]), **schema}}


def _shape_of(own: Mapping[str, Any]) -> dict[str, Any]:
    """What can be said of both kinds: properties that a task does not have. The client follows no references there."""
    properties: Mapping[str, Any] = own.get("properties", {})
    tasks = cast("Mapping[str, Any]", TASK_SCHEMA)["properties"]
    if not properties or not properties.keys().isdisjoint(tasks) or "$ref" in str(properties):
        return {}
    shape = {name: value for name, value in own.items() if name in ("title", "x-fastmcp-wrap-result")}
    return {**shape, "properties": properties}


class Catalogue:
    """The tools that have been seen."""

    def __init__(self, server: AnyFastMCP) -> None:
        self.on_new: Callable[[Tool], object] = lambda tool: tool
        """Called with a tool that was not seen before, or is another by now."""
        self._server = server
        self._seen: dict[str, tuple[Tool, SdkTool]] = {}

    def get_tool(self, name: str) -> SdkTool | None:
        """A tool that has been seen."""
        seen = self._seen.get(name)
        return None if seen is None else seen[1]

    def note(self, tool: Tool) -> SdkTool:
        """A tool was seen. While it stays the same, so does what is noted: FastMCP may make a copy each time."""
        seen = self._seen.get(tool.name)
        if seen is None or not _is_same(seen[0], tool):
            seen = self._seen[tool.name] = (tool, self.described(tool))
            self.on_new(tool)
        return seen[1]

    def note_all(self, tools: Iterable[Tool]) -> None:
        """Several were seen. Of versions of one tool, the latest counts, which is the one that is called."""
        for tool in sorted(tools, key=version_sort_key):
            self.note(tool)

    def described(self, tool: Tool) -> SdkTool:
        """A tool in the words of the SDK: as much as is asked of it before a task begins."""
        return SdkTool.model_construct(
            fn=_not_callable,
            name=tool.name,
            title=tool.title,
            description=tool.description or "",
            parameters=tool.parameters,
            fn_metadata=Arguments.of(tool, is_strict=self._server.strict_input_validation),
            is_async=True,
            context_kwarg=None,
            resolved_params={},
            resolver_plans={},
            annotations=tool.annotations,
            icons=tool.icons,
            meta=tool.meta,
        )


class Arguments(FuncMetadata):
    """How the arguments of a tool are read. Tools that are no functions read them when they run."""

    function: Any = None
    is_strict: bool = False

    @classmethod
    def of(cls, tool: Tool, *, is_strict: bool) -> "Arguments":
        function = without_injected_parameters(tool.fn) if isinstance(tool, FunctionTool) else None
        return cls(arg_model=ArgModelBase, function=function, is_strict=is_strict)

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """What FastMCP would make of them.

        Raises:
            ValidationError: they don't fit.
        """
        if self.function is None:
            return arguments_to_validate
        if self.is_strict:
            return self._reading.validate_json(to_json(arguments_to_validate), strict=True)
        return self._reading.validate_python(arguments_to_validate)

    @cached_property
    def _reading(self) -> TypeAdapter[dict[str, Any]]:
        return TypeAdapter(cast("type[dict[str, Any]]", reader_of(self.function)))


def reader_of(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """A function with the parameters of another, which only returns what it is given: pydantic calls what it checks."""
    signature = inspect.signature(function, eval_str=True)

    def call(*args: Any, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401 - of any function
        return signature.bind(*args, **kwargs).arguments

    notes = {one.name: one.annotation for one in signature.parameters.values() if one.annotation is not one.empty}
    call.__signature__ = signature  # type: ignore[attr-defined] # where `inspect` looks first
    call.__annotations__ = notes
    return call


def _is_same(one: Tool, other: Tool) -> bool:
    return one is other or (
        (one.key, one.parameters, one.annotations) == (other.key, other.parameters, other.annotations)
        and getattr(one, "fn", None) is getattr(other, "fn", None)
    )


def _not_callable() -> None:
    """FastMCP calls its tools itself."""
