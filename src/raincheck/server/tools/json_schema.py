"""Serve ready-made tools that declare their arguments in a JSON Schema.

The SDK makes a tool of a function, whose signature declares the arguments. A ready-made tool has no such signature: its
schema is listed unchanged, arguments are validated against it, and any JSON that the body returns is the result.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import CallToolResult, TextContent
from pydantic import PrivateAttr
from pydantic_core import to_json
from referencing import Registry

from raincheck.core.payload import Json
from raincheck.engine.execution.context import SyncTaskContext, TaskContext
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.server.identity import CallerContext
from raincheck.server.tools.functions import CONTEXT_PARAMETER, REQUEST_PARAMETER
from raincheck.server.tools.results import SdkErrorMapping, encode_result, text_of
from raincheck.wire.fallback_text import clip_text

MAX_SHOWN_ERRORS = 5
"""Most errors in arguments that a message lists: enough to fix a call."""

WRAPPED = "result"
"""The key under which the SDK wraps a value that is not an object."""


class InputSchema:
    """The arguments of a tool, as a JSON Schema.

    Raises:
        ConfigurationError: the schema is invalid, or not that of an object.
    """

    def __init__(self, tool: str, schema: Mapping[str, Json]) -> None:
        self.listed = cast("dict[str, Any]", dict(schema))
        """The schema as it is listed."""
        kind = validator_for(self.listed)
        try:
            kind.check_schema(self.listed)
        except SchemaError as error:
            raise ConfigurationError(f"tool {tool!r}: its input schema is invalid: {error.message}") from error
        if self.listed.get("type") != "object":
            raise ConfigurationError(
                f'tool {tool!r}: its input schema must have "type": "object", because arguments are an object'
            )
        for reserved in (CONTEXT_PARAMETER, REQUEST_PARAMETER):
            if reserved in self.names:
                raise ConfigurationError(f"tool {tool!r}: {reserved!r} is a reserved name: rename the argument")
        problem = find_invalid_x_mcp_header(self.listed)
        if problem is not None:
            raise ConfigurationError(f"tool {tool!r} has an invalid x-mcp-header in its input schema: {problem}")
        # The registry is empty, so that no schema makes the server fetch anything.
        self._validator: Any = kind(self.listed, registry=Registry())

    @property
    def names(self) -> Mapping[str, Any]:
        """The arguments that the schema names."""
        return self.listed.get("properties", {})

    def describe_errors(self, arguments: Mapping[str, Any]) -> str | None:
        """Return a description of the errors in arguments; None if they fit."""
        errors = sorted(self._validator.iter_errors(dict(arguments)), key=lambda error: list(map(str, error.path)))
        texts = [_describe_error(list(error.absolute_path), str(error.message)) for error in errors[:MAX_SHOWN_ERRORS]]
        if len(errors) > MAX_SHOWN_ERRORS:
            texts.append(f"and {len(errors) - MAX_SHOWN_ERRORS} more")
        return "; ".join(texts) or None


def _describe_error(path: list[str | int], message: str) -> str:
    return f"{'.'.join(map(str, path))}: {clip_text(message)}" if path else clip_text(message)


class SchemaFuncMetadata(FuncMetadata):
    """Validates arguments by a JSON Schema, where the SDK would use a signature."""

    _schema: InputSchema = PrivateAttr()

    @classmethod
    def from_schema(cls, schema: InputSchema) -> "SchemaFuncMetadata":
        metadata = cls(arg_model=ArgModelBase)
        metadata._schema = schema
        return metadata

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged.

        Raises:
            ToolError: they don't fit.
        """
        problems = self._schema.describe_errors(arguments_to_validate)
        if problems is not None:
            raise SdkToolError(f"the arguments do not fit its input schema: {problems}")
        return arguments_to_validate


def apply_schema(sdk: SdkTool, schema: InputSchema, description: str) -> None:
    """Make the SDK list a tool and validate its arguments by this schema, and pass its context beside them."""
    # Otherwise it would be the docstring of the stand-in function.
    sdk.description = description
    sdk.parameters, sdk.fn_metadata, sdk.context_kwarg = (
        schema.listed,
        SchemaFuncMetadata.from_schema(schema),
        REQUEST_PARAMETER,
    )


async def stand_in(*, raincheck_request: Context[Any, Any]) -> CallToolResult:
    """Placeholder from which the SDK makes a tool, before the schema is applied. It is never called."""
    raise AssertionError(raincheck_request)


def make_schema_body(tool: TaskTool) -> Callable[..., Any]:
    """Return the body that a task runs for a ready-made tool: the tool's own, with its result in protocol form.

    Raises:
        ConfigurationError: the tool runs in a separate process, which has no way to find its body.
    """
    if tool.isolation is not None:
        raise ConfigurationError(
            f"tool {tool.name!r} runs in a separate process, which only functions can: serve it with @tasks.tool"
        )

    async def in_loop(*, raincheck_context: TaskContext, **arguments: Json) -> Json:
        task = raincheck_context
        with CallerContext(task.caller, task.id, tool.name), SdkErrorMapping():
            return encode_result(as_result(await tool.body(**arguments, **_with_task(tool, task))))

    def in_thread(*, raincheck_context: SyncTaskContext, **arguments: Json) -> Json:
        task = raincheck_context
        with CallerContext(task.caller, task.id, tool.name), SdkErrorMapping():
            return encode_result(as_result(tool.body(**arguments, **_with_task(tool, task))))

    body: Callable[..., Any] = in_loop if tool.is_async else in_thread
    body.__name__ = body.__qualname__ = tool.name
    return body


def _with_task(tool: TaskTool, task: TaskContext | SyncTaskContext) -> dict[str, Any]:
    return {} if tool.context_parameter is None else {tool.context_parameter: task}


def as_result(value: Any) -> CallToolResult:  # noqa: ANN401 - whatever a body returned
    """Convert a value to a result with text for models and structured content for programs."""
    if isinstance(value, CallToolResult):
        return value
    text = value if isinstance(value, str) else to_json(value, indent=2).decode()
    content = [] if value is None else [TextContent(type="text", text=text)]
    # An object that looks wrapped is wrapped too, so that each value is restored unchanged.
    is_itself = isinstance(value, dict) and set(cast("dict[str, Any]", value)) != {WRAPPED}
    return CallToolResult(content=list(content), structured_content=value if is_itself else {WRAPPED: value})


def unwrap_value(result: Json) -> Json:
    """Return the value that a result was made of, which other tasks get."""
    if not isinstance(result, Mapping):
        return result
    structured = result.get("structuredContent")
    if structured is None:
        return text_of(result) if result.get("content") else None
    is_wrapped = isinstance(structured, Mapping) and set(structured) == {WRAPPED}
    return cast("Mapping[str, Json]", structured)[WRAPPED] if is_wrapped else structured


def make_argument_check(tool: TaskTool, schema: InputSchema) -> Callable[[Mapping[str, Json]], object]:
    """Return a check of the arguments of tasks that start without a call, such as child tasks."""
    return partial(_check_arguments, tool, schema)


def _check_arguments(tool: TaskTool, schema: InputSchema, arguments: Mapping[str, Json]) -> None:
    problems = schema.describe_errors(arguments)
    if problems is not None:
        raise InvalidValue(f"the arguments do not fit tool {tool.name!r}: {problems}")
    tool.validate(arguments)
