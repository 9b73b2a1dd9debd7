"""Convert the tools of a FastMCP server to those of the SDK.

FastMCP looks up a tool by querying its providers, which is slow and may return a different tool for each caller. The
catalog records the tools that have been seen, for code that can't wait: whether a tool exists, and how its arguments
are validated.

FastMCP's own client converts the output of tools by their output schema. The schema that callers without tasks see
declares that the output may be a task instead. That client treats a schema with two alternatives as a plain object, so
the properties of the first alternative are repeated where the client looks for them.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias, cast

from fastmcp.server.dependencies import without_injected_parameters
from fastmcp.tools import FunctionTool, Tool
from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from pydantic import TypeAdapter
from pydantic_core import to_json

from fastmcp import FastMCP
from raincheck.server.sdk_compat import AnyContext, fields_of
from raincheck.server.tools.functions import set_signature
from raincheck.wire.fallback_tools import TASK_SCHEMA

AnyFastMCP: TypeAlias = FastMCP[Any]


async def expose_output_properties(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
    """Middleware that repeats the output properties of tools that are listed to callers without tasks."""
    result = await call_next(ctx)
    if ctx.method != "tools/list":
        return result
    page = fields_of(result)
    return page | {"tools": [_with_output_properties(tool) for tool in page.get("tools", ())]}


def _with_output_properties(tool: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = tool.get("outputSchema") or {}
    alternatives: list[Any] = schema.get("anyOf") or []
    if len(alternatives) != 2 or alternatives[1] != TASK_SCHEMA:
        return tool
    return {**tool, "outputSchema": {**_shared_output_keys(alternatives[0]), **schema}}


def _shared_output_keys(output_schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys to repeat: properties, unless a task has one of them. The client resolves no references there."""
    properties: Mapping[str, Any] = output_schema.get("properties", {})
    task_properties = cast("Mapping[str, Any]", TASK_SCHEMA)["properties"]
    if not properties or not properties.keys().isdisjoint(task_properties) or "$ref" in str(properties):
        return {}
    keys = {name: value for name, value in output_schema.items() if name in ("title", "x-fastmcp-wrap-result")}
    return {**keys, "properties": properties}


class ToolCatalog:
    """Records the tools that have been seen."""

    def __init__(self, server: AnyFastMCP) -> None:
        self.on_new: Callable[[Tool], object] = lambda tool: tool
        """Called with a tool that is new, or has changed."""
        self._server = server
        self._seen: dict[str, tuple[Tool, SdkTool]] = {}

    def get_tool(self, name: str) -> SdkTool | None:
        """Return a tool that has been seen, or None."""
        seen = self._seen.get(name)
        return None if seen is None else seen[1]

    def record(self, tool: Tool) -> SdkTool:
        """Record a tool. The record stays the same while the tool does: FastMCP may return a copy each time."""
        seen = self._seen.get(tool.name)
        if seen is None or not _is_same(seen[0], tool):
            seen = self._seen[tool.name] = (tool, self.to_sdk_tool(tool))
            self.on_new(tool)
        return seen[1]

    def to_sdk_tool(self, tool: Tool) -> SdkTool:
        """Convert a tool to the SDK's type, with the fields that are needed before a task starts."""
        return SdkTool.model_construct(
            fn=_not_callable,
            name=tool.name,
            title=tool.title,
            description=tool.description or "",
            parameters=tool.parameters,
            fn_metadata=FastMCPFuncMetadata.for_tool(tool, is_strict=self._server.strict_input_validation),
            is_async=True,
            context_kwarg=None,
            resolved_params={},
            resolver_plans={},
            annotations=tool.annotations,
            icons=tool.icons,
            meta=tool.meta,
        )


class FastMCPFuncMetadata(FuncMetadata):
    """Validates the arguments of a tool. Tools that are not functions validate them when they run."""

    function: Any = None
    is_strict: bool = False

    @classmethod
    def for_tool(cls, tool: Tool, *, is_strict: bool) -> "FastMCPFuncMetadata":
        function = without_injected_parameters(tool.fn) if isinstance(tool, FunctionTool) else None
        return cls(arg_model=ArgModelBase, function=function, is_strict=is_strict)

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as FastMCP would convert them.

        Raises:
            ValidationError: they are invalid.
        """
        if self.function is None:
            return arguments_to_validate
        if self.is_strict:
            return self._validator.validate_json(to_json(arguments_to_validate), strict=True)
        return self._validator.validate_python(arguments_to_validate)

    @cached_property
    def _validator(self) -> TypeAdapter[dict[str, Any]]:
        return TypeAdapter(cast("type[dict[str, Any]]", make_argument_collector(self.function)))


def make_argument_collector(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Return a function with the same parameters that returns its arguments, since pydantic calls what it validates."""
    signature = inspect.signature(function, eval_str=True)

    def call(*args: Any, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401 - any function
        return signature.bind(*args, **kwargs).arguments

    set_signature(call, signature.replace(return_annotation=inspect.Signature.empty))
    return call


def _is_same(first: Tool, second: Tool) -> bool:
    return first is second or (
        (first.key, first.parameters, first.annotations) == (second.key, second.parameters, second.annotations)
        and getattr(first, "fn", None) is getattr(second, "fn", None)
    )


def _not_callable() -> None:
    """Placeholder: FastMCP calls its tools itself."""
