"""What a tool returns or raises: as a task keeps it, always the JSON of a `CallToolResult`; and as a call gives it."""

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
from raincheck.wire.errors import chose_its_error, error_of
from raincheck.wire.fields import outcome_of
from raincheck.wire.results import tool_result

logger = text_logger(__name__)

COMPLETE = {"resultType": "complete"}
"""What the SDK wants said of every result, and leaves out where a version does not know it."""


def keep_result(result: BaseModel | Mapping[str, Any] | None) -> Json:
    """The result of a call as JSON.

    Raises:
        ToolError: it reports an error: the same JSON, as the content of one.
    """
    kept = as_json(result or {"content": []})
    if kept.get("isError"):
        raise ToolError(text_of(kept), content=kept)
    return kept


def error_result(message: str) -> CallToolResult:
    """A result that tells of an error."""
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)


def as_json(result: BaseModel | Mapping[str, Any]) -> dict[str, Json]:
    """A result without what belongs to one version of the protocol: a task may be read in another."""
    if isinstance(result, BaseModel):
        result = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {name: value for name, value in result.items() if name != "resultType"}


def text_of(result: Mapping[str, Json]) -> str:
    """What a result says, in words."""
    blocks = cast("list[Mapping[str, Any]]", result.get("content") or [])
    texts = [str(block["text"]) for block in blocks if "text" in block]
    return "\n".join(texts) or "the tool reports an error"


def value_of(result: Json) -> Json:
    """What of a result another tool gets: the value that was returned, as far as the protocol kept it."""
    if not isinstance(result, Mapping):
        return result
    if "structuredContent" not in result:
        return text_of(result) if result.get("content") else None
    structured = result["structuredContent"]
    # So the SDK wraps what is no object by itself.
    if isinstance(structured, Mapping) and set(structured) == {"result"}:
        return structured["result"]
    return structured


def call_result(view: View) -> dict[str, Any]:
    """What the call of a task that has ended returns.

    Raises:
        MCPError: it returns nothing, and this is why.
    """
    match view.task.status:
        case Status.COMPLETED:
            return {**tool_result(view.task, outcome_of(view)), **COMPLETE}
        case Status.FAILED if not chose_its_error(view):
            # As the SDK tells of a crash, so that the model reads of it.
            return {**as_json(error_result(error_of(view)["message"])), **COMPLETE}
        case Status.FAILED:
            error = error_of(view)
            raise MCPError(error["code"], error["message"], error.get("data"))
        case _:
            raise MCPError(errors.CANCELLED, view.task.status_message or "the call was cancelled")


class TellingErrors:
    """Turns the SDK's errors into ours: those for the caller to read, and those that are the protocol's.

    Raises:
        ToolError, ProtocolError: what the body meant.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        meant = None if error is None else _meant(error)
        if meant is not None:
            raise meant from error


def _meant(error: BaseException) -> BaseException | None:
    """What a body's error says in our words; None if it stands for itself."""
    match error:
        case ToolError() if isinstance(error.content, Mapping):
            return None
        case MCPError():
            return ProtocolError(error.error.message, error.error.code, error.error.data)
        case UnexpectedToolError() | UnexpectedResourceError():
            # The SDK's words for a crash. Whether it is tried again depends on what it was.
            return error.__cause__
        case ToolError() | SdkToolError() | ResourceError():
            return ToolError(str(error), content=as_json(error_result(str(error))))
        case _:
            return None


def describe_failure(tool: str, error: Exception) -> CallToolResult:
    """The answer to a call that came to nothing before its task began, as the SDK itself would put it.

    Wrong arguments, and what a resolver said on purpose, are for the model to read. A crash is not.
    """
    is_meant = isinstance(error, ValidationError | SdkToolError | ResourceError)
    if is_meant and not isinstance(error, UnexpectedToolError | UnexpectedResourceError):
        return error_result(f"Error executing tool {tool}: {error}")
    logger.error("tool %r could not be called", tool, exc_info=error)
    return error_result(f"Error executing tool {tool}")
