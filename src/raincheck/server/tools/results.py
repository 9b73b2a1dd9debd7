"""Convert the results and errors of tools for a task to store, and stored results for a call to return.

A task always stores the JSON of a `CallToolResult`.
"""

from collections.abc import Mapping
from typing import Any, cast

from mcp.server.mcpserver.exceptions import ResourceError, UnexpectedResourceError, UnexpectedToolError
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, ValidationError

from raincheck.core.lifecycle import Status
from raincheck.core.payload import Json
from raincheck.core.records import View
from raincheck.errors import ProtocolError, ToolError
from raincheck.tracebacks import text_logger
from raincheck.wire import errors
from raincheck.wire.errors import error_of, is_protocol_error
from raincheck.wire.fields import outcome_of
from raincheck.wire.results import tool_result

logger = text_logger(__name__)

COMPLETE = {"resultType": "complete"}
"""The field that the SDK requires in every result, and leaves out in versions that don't have it."""


def encode_result(result: BaseModel | Mapping[str, Any] | None) -> Json:
    """Encode the result of a call as JSON.

    Raises:
        ToolError: the result reports an error. The content of the error is the same JSON.
    """
    encoded = as_json(result or {"content": []})
    if encoded.get("isError"):
        raise ToolError(text_of(encoded), content=encoded)
    return encoded


def error_result(message: str) -> CallToolResult:
    """Return a result that reports an error."""
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)


def as_json(result: BaseModel | Mapping[str, Any]) -> dict[str, Json]:
    """Return a result without the fields of one protocol version, because a task may be read in another."""
    if isinstance(result, BaseModel):
        result = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {name: value for name, value in result.items() if name != "resultType"}


def text_of(result: Mapping[str, Json]) -> str:
    """Return the text of a result."""
    blocks = cast("list[Mapping[str, Any]]", result.get("content") or [])
    texts = [str(block["text"]) for block in blocks if "text" in block]
    return "\n".join(texts) or "the tool reports an error"


def value_of(result: Json) -> Json:
    """Return the value of a result for another tool: the returned value, as far as the protocol preserved it."""
    if not isinstance(result, Mapping):
        return result
    if "structuredContent" not in result:
        return text_of(result) if result.get("content") else None
    structured = result["structuredContent"]
    # The SDK wraps a value that is not an object like this.
    if isinstance(structured, Mapping) and set(structured) == {"result"}:
        return structured["result"]
    return structured


def call_result(view: View) -> dict[str, Any]:
    """Return the result of a terminal task as the result of its call.

    Raises:
        MCPError: the call returns this error instead.
    """
    match view.task.status:
        case Status.COMPLETED:
            return {**tool_result(view.task, outcome_of(view)), **COMPLETE}
        case Status.FAILED if not is_protocol_error(view):
            # In the way the SDK reports a crash, so that the model reads it.
            return {**as_json(error_result(error_of(view)["message"])), **COMPLETE}
        case Status.FAILED:
            error = error_of(view)
            raise MCPError(error["code"], error["message"], error.get("data"))
        case _:
            raise MCPError(errors.CANCELLED, view.task.status_message or "the call was cancelled")


class SdkErrorMapping:
    """Context manager that converts the SDK's errors to raincheck's: those for the caller, and those of the protocol.

    Raises:
        ToolError, ProtocolError: the error that the body meant.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        converted = None if error is None else _converted(error)
        if converted is not None:
            raise converted from error


def _converted(error: BaseException) -> BaseException | None:
    """Convert a body's error to an error of raincheck; return None if it needs no conversion."""
    match error:
        case ToolError() if isinstance(error.content, Mapping):
            return None
        case MCPError():
            return ProtocolError(error.error.message, error.error.code, error.error.data)
        case UnexpectedToolError() | UnexpectedResourceError():
            # The SDK's wrapper for a crash. Its cause decides whether the task is retried.
            return error.__cause__
        case ToolError() | SdkToolError() | ResourceError():
            return ToolError(str(error), content=as_json(error_result(str(error))))
        case _:
            return None


def describe_failure(tool: str, error: Exception) -> CallToolResult:
    """Return the answer to a call that failed before its task started, as the SDK itself would put it.

    Wrong arguments, and errors that a resolver raised on purpose, are for the model to read. A crash is not.
    """
    is_for_model = isinstance(error, ValidationError | SdkToolError | ResourceError)
    if is_for_model and not isinstance(error, UnexpectedToolError | UnexpectedResourceError):
        return error_result(f"Error executing tool {tool}: {error}")
    logger.error("tool %r could not be called", tool, exc_info=error)
    return error_result(f"Error executing tool {tool}")
