"""Tools that are ready to run and say what they take in a JSON Schema: what the SDK lists of one, and what a task runs.

The SDK makes a tool of a function, whose signature says what it takes. These have none that says it: the schema is
listed as it is, arguments are held against it, and whatever JSON comes back is the result.
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
from raincheck.server.identity import ActingFor
from raincheck.server.tools.functions import CONTEXT, REQUEST
from raincheck.server.tools.results import TellingErrors, keep_result, text_of
from raincheck.wire.fallback_text import clipped

MOST_TOLD = 5
"""Of what is wrong with arguments: enough to mend a call by."""

WRAPPED = "result"
"""Where a value goes that is no object, as the SDK has it."""


class InputSchema:
    """What a tool takes, as a JSON Schema.

    Raises:
        ConfigurationError: it is none, or not that of an object.
    """

    def __init__(self, tool: str, schema: Mapping[str, Json]) -> None:
        self.listed = cast("dict[str, Any]", dict(schema))
        """As it is listed."""
        kind = validator_for(self.listed)
        try:
            kind.check_schema(self.listed)
        except SchemaError as error:
            raise ConfigurationError(f"tool {tool!r}: its input schema is none: {error.message}") from error
        if self.listed.get("type") != "object":
            raise ConfigurationError(f'tool {tool!r}: arguments are an object, so its input schema has type: "object"')
        for ours in (CONTEXT, REQUEST):
            if ours in self.names:
                raise ConfigurationError(f"tool {tool!r}: {ours!r} is our own name: give the argument another")
        wrong = find_invalid_x_mcp_header(self.listed)
        if wrong is not None:
            raise ConfigurationError(f"tool {tool!r} has an x-mcp-header in its input schema that can't be: {wrong}")
        # With no registry but an empty one, so that no schema makes us fetch anything.
        self._validator: Any = kind(self.listed, registry=Registry())

    @property
    def names(self) -> Mapping[str, Any]:
        """The arguments that it names."""
        return self.listed.get("properties", {})

    def faults(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with arguments; None if they fit."""
        found = sorted(self._validator.iter_errors(dict(arguments)), key=lambda error: list(map(str, error.path)))
        told = [_told(list(error.absolute_path), str(error.message)) for error in found[:MOST_TOLD]]
        if len(found) > MOST_TOLD:
            told.append(f"and {len(found) - MOST_TOLD} more")
        return "; ".join(told) or None


def _told(path: list[str | int], message: str) -> str:
    return f"{'.'.join(map(str, path))}: {clipped(message)}" if path else clipped(message)


class SchemaArguments(FuncMetadata):
    """Reads arguments by a JSON Schema, where the SDK would by a signature."""

    _schema: InputSchema = PrivateAttr()

    @classmethod
    def by(cls, schema: InputSchema) -> "SchemaArguments":
        made = cls(arg_model=ArgModelBase)
        made._schema = schema
        return made

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they are.

        Raises:
            ToolError: they don't fit.
        """
        wrong = self._schema.faults(arguments_to_validate)
        if wrong is not None:
            raise SdkToolError(f"the arguments do not fit its input schema: {wrong}")
        return arguments_to_validate


def list_by_schema(sdk: SdkTool, schema: InputSchema, description: str) -> None:
    """Let the SDK list a tool, and read its arguments, by this schema. It takes its context beside them."""
    # Else that of the function that stands for it.
    sdk.description = description
    sdk.parameters, sdk.fn_metadata, sdk.context_kwarg = schema.listed, SchemaArguments.by(schema), REQUEST


async def stand_in(*, raincheck_request: Context[Any, Any]) -> CallToolResult:
    """What the SDK is given of a tool before it is told the rest. It is never called."""
    raise AssertionError(raincheck_request)


def body_of(tool: TaskTool) -> Callable[..., Any]:
    """What a task runs where the tool is served: the tool's own body, whose result is told in the protocol's words.

    Raises:
        ConfigurationError: it runs in a process of its own, which could not be told of its body.
    """
    if tool.isolation is not None:
        raise ConfigurationError(
            f"tool {tool.name!r} runs in a process of its own, which is for functions: serve it with @tasks.tool"
        )

    async def in_loop(*, raincheck_context: TaskContext, **arguments: Json) -> Json:
        task = raincheck_context
        with ActingFor(task.caller, task.id, tool.name), TellingErrors():
            return keep_result(as_result(await tool.body(**arguments, **_with_task(tool, task))))

    def in_thread(*, raincheck_context: SyncTaskContext, **arguments: Json) -> Json:
        task = raincheck_context
        with ActingFor(task.caller, task.id, tool.name), TellingErrors():
            return keep_result(as_result(tool.body(**arguments, **_with_task(tool, task))))

    body: Callable[..., Any] = in_loop if tool.is_async else in_thread
    body.__name__ = body.__qualname__ = tool.name
    return body


def _with_task(tool: TaskTool, task: TaskContext | SyncTaskContext) -> dict[str, Any]:
    return {} if tool.context_name is None else {tool.context_name: task}


def as_result(value: Any) -> CallToolResult:  # noqa: ANN401 - whatever a body returned
    """A value for whoever reads words, and for whoever reads JSON."""
    if isinstance(value, CallToolResult):
        return value
    words = value if isinstance(value, str) else to_json(value, indent=2).decode()
    content = [] if value is None else [TextContent(type="text", text=words)]
    # An object that looks like one that is wrapped is wrapped too, so that each is found again as it was.
    is_itself = isinstance(value, dict) and set(cast("dict[str, Any]", value)) != {WRAPPED}
    return CallToolResult(content=list(content), structured_content=value if is_itself else {WRAPPED: value})


def value_in(result: Json) -> Json:
    """The value again: what other tasks get."""
    if not isinstance(result, Mapping):
        return result
    structured = result.get("structuredContent")
    if structured is None:
        return text_of(result) if result.get("content") else None
    is_wrapped = isinstance(structured, Mapping) and set(structured) == {WRAPPED}
    return cast("Mapping[str, Json]", structured)[WRAPPED] if is_wrapped else structured


def accepting(tool: TaskTool, schema: InputSchema) -> Callable[[Mapping[str, Json]], object]:
    """What refuses arguments of tasks that are begun without a call, such as those of other tasks."""
    return partial(_accept, tool, schema)


def _accept(tool: TaskTool, schema: InputSchema, arguments: Mapping[str, Json]) -> None:
    wrong = schema.faults(arguments)
    if wrong is not None:
        raise InvalidValue(f"the arguments do not fit tool {tool.name!r}: {wrong}")
    tool.accepts(arguments)
