"""Convert the results and errors of tools for a task to store, and stored tasks for their owners to receive.

A task always stores the JSON of a `CallToolResult`.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from mcp.server.mcpserver.exceptions import ResourceError, UnexpectedResourceError, UnexpectedToolError
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, ValidationError

from raincheck.core.lifecycle import Status
from raincheck.core.records import View
from raincheck.core.values import Json
from raincheck.errors import InvalidValue, ProtocolError, ToolError
from raincheck.server import audit
from raincheck.server.errors import internal_error
from raincheck.server.runtime import ServerRuntime
from raincheck.server.tools.policy import is_joined_by_arguments
from raincheck.server.wait_policy import WaitPolicy
from raincheck.tracebacks import text_logger
from raincheck.wire import errors
from raincheck.wire.errors import error_of, is_protocol_error
from raincheck.wire.fields import outcome_of
from raincheck.wire.results import tool_result

logger = text_logger(__name__)

COMPLETE = {"resultType": "complete"}
"""The field that the SDK requires in every result, and leaves out in versions that don't have it."""

WRAPPED = "result"
"""The key under which the SDK wraps a value that is not an object."""

RELEASE_TIMEOUT = 1.0
"""Most seconds that a response with a result waits for the release of its call's key."""


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
    return structured[WRAPPED] if isinstance(structured, Mapping) and set(structured) == {WRAPPED} else structured


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


@dataclass(frozen=True, slots=True, eq=False)
class TaskRenderer:
    """Renders tasks for their owners, and records that an owner has retrieved a terminal task."""

    runtime: ServerRuntime
    wait_policy: WaitPolicy

    async def render(self, view: View, to_wire: Callable[..., object], *, has_result: bool = True) -> dict[str, Any]:
        """Render a task for its owner with `to_wire`, which may omit the result, and record the retrieval.

        Raises:
            MCPError: the stored data can't be read, which is not the owner's fault.
        """
        await self.record_retrieval(view, has_result=has_result)
        poll_ms = self.wait_policy.poll_interval_ms(view.task)
        return cast("dict[str, Any]", _read(view, lambda view: to_wire(view, poll_ms=poll_ms)))

    async def render_result(self, view: View) -> dict[str, Any]:
        """Render the result of a terminal task, as the call itself would have returned it.

        Raises:
            MCPError: the task has no result.
        """
        await self.record_retrieval(view)
        return cast("dict[str, Any]", _read(view, call_result))

    async def record_retrieval(self, view: View, *, has_result: bool = True) -> None:
        """Record that the view is about to be sent to its owner."""
        task = view.task
        if not task.is_terminal:
            return
        audit.log_event("retrieved", task.owner, task_id=task.id, tool=task.tool.name)
        if has_result and is_joined_by_arguments(task):
            # First release the key, so that the same call runs again from now on, in any process.
            releasing = asyncio.ensure_future(self.runtime.engine.release_key(task))
            self.runtime.finish_before_stop(releasing)
            await asyncio.wait([releasing], timeout=RELEASE_TIMEOUT)


def _read(view: View, to_wire: Callable[[View], object]) -> object:
    try:
        return to_wire(view)
    except InvalidValue as error:
        raise internal_error(f"task {view.task.log_id}", error) from error
