"""Classify transport errors: lost responses, HTTP statuses, and the reasons of refused cancels.

The SDK reports a lost response with error codes that servers use too, so the classification also matches messages. It
reports that an HTTP request failed, but not its status. The sender of a request therefore stores a record for the
status in the context. The SDK sends the request in a copy of that context, so a hook of the HTTP client finds the
record of this request. All of this can be removed when the SDK reports the status.

A cancel is refused if the task is a workflow instance whose workflow does not allow it.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from raincheck.client.errors import RequestRefused
from raincheck.errors import CancelRefused
from raincheck.wire import errors
from raincheck.wire.fields import CANCEL_REFUSED_META_KEY, as_object

if TYPE_CHECKING:
    import httpx2


@dataclass(slots=True)
class HttpResponseInfo:
    """The HTTP details of the last response to a request."""

    status: int | None = None
    """None if the transport is not HTTP, or its client has no hook."""
    retry_after: float | None = None
    """Seconds after which the server accepts a retry."""


_response_info: ContextVar[HttpResponseInfo | None] = ContextVar("raincheck_http_status", default=None)


@contextmanager
def record_response(info: HttpResponseInfo) -> Generator[None]:
    """Record the responses to the requests that are sent inside the context."""
    before = _response_info.set(info)
    try:
        yield
    finally:
        _response_info.reset(before)


async def record_http_status(response: "httpx2.Response") -> None:
    """A response hook for your own HTTP client, so that a status such as 401 is reported at once.

    httpx2.AsyncClient(headers=…, event_hooks={"response": [record_http_status]})
    """
    info = _response_info.get()
    if info is not None:
        info.status = response.status_code
        retry_after = response.headers.get("retry-after", "")
        # A date depends on the server's clock, which may differ.
        info.retry_after = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None


@asynccontextmanager
async def http_transport(url: str, headers: Mapping[str, str] | None = None) -> AsyncGenerator[TransportStreams]:
    """Open the SDK's transport to a URL, with the hook."""
    # In a thread, because it loads certificates.
    http = await asyncio.to_thread(create_mcp_http_client, headers=None if headers is None else dict(headers))
    async with http:
        http.event_hooks = {"response": [record_http_status]}
        async with streamable_http_client(url, http_client=http) as streams:
            yield streams


ALREADY_COMPLETED = "already-completed"
"""The reason of a refused cancel of a task that has already ended."""

CANCEL_REFUSED_TEXT = re.compile(
    r"can't be cancelled \(([\w-]+)\): (.*?)(?:\. It (?:goes on|continues)\.)?$", re.DOTALL
)
"""Matches the reason code and the explanation in the text of a server of any version."""


def check_cancel_meta(task_id: str, meta: dict[str, Any] | None) -> None:
    """Check whether an acknowledged cancel was refused.

    Raises:
        CancelRefused: it was, and the task continues.
    """
    refused = parse_cancel_refusal(task_id, (meta or {}).get(CANCEL_REFUSED_META_KEY))
    if refused is not None and refused.reason != ALREADY_COMPLETED:
        raise refused


def check_cancel_text(task_id: str, text: str) -> None:
    """Check whether a server's text refuses to cancel a task.

    Raises:
        CancelRefused: it does, and the task continues.
    """
    match = CANCEL_REFUSED_TEXT.search(text)
    if match is not None:
        raise CancelRefused(task_id, match[1], match[2])


def parse_cancel_refusal(task_id: str, data: Any) -> CancelRefused | None:  # noqa: ANN401 - any JSON from a server
    """Parse a refusal in its machine-readable form; None if the data has another form."""
    reason, message = (as_object(data).get(name) for name in ("reason", "message"))
    if not isinstance(reason, str) or not isinstance(message, str):
        return None
    match = CANCEL_REFUSED_TEXT.search(message)
    return CancelRefused(task_id, reason, message if match is None else match[2])


class LossKind(Enum):
    """What was lost when a request got no response."""

    RESPONSE = auto()
    """Only the response was lost. The next request may succeed."""
    CONNECTION = auto()
    """The connection was lost, or the server has dropped its session."""


_HTTP_ERROR_MESSAGE = "Server returned an error response"
"""The SDK's message for a status from 400 on, except 404 and responses that contain an MCP error."""

_NO_ENDPOINT = (METHOD_NOT_FOUND, "Not Found")
"""The SDK's error for a 404 without a session."""

TOO_MANY_REQUESTS = 429

_REFUSED = range(400, 500)
_RETRYABLE_STATUSES = (408, 425)
"""Client errors for a request that did not arrive, or not in time."""

_LOSS_MESSAGES = (
    (CONNECTION_CLOSED, "Connection closed", LossKind.CONNECTION),
    (INVALID_REQUEST, "Session terminated", LossKind.CONNECTION),
    # Sent by servers that are built on the SDKs for Python and for TypeScript.
    (INVALID_REQUEST, "Session not found", LossKind.CONNECTION),
    (REQUEST_TIMEOUT, "Session not found", LossKind.CONNECTION),
    (CONNECTION_CLOSED, "SSE stream", LossKind.RESPONSE),
    (INTERNAL_ERROR, _HTTP_ERROR_MESSAGE, LossKind.RESPONSE),
    (REQUEST_TIMEOUT, "Request '", LossKind.RESPONSE),
    (REQUEST_TIMEOUT, "Timed out after", LossKind.RESPONSE),
)


def classify_loss(error: MCPError) -> LossKind | None:
    """Return what was lost; None if the error is the server's response."""
    detail = error.error
    if detail.data is not None:
        return None
    return next(
        (loss for code, start, loss in _LOSS_MESSAGES if detail.code == code and detail.message.startswith(start)),
        None,
    )


def is_store_unavailable(error: MCPError) -> bool:
    """Return whether the server's store is unavailable. This counts as no response."""
    return (error.error.code, error.error.message) == (errors.INTERNAL_ERROR, errors.STORE_UNAVAILABLE)


def http_refusal(server: str, error: MCPError, info: HttpResponseInfo) -> RequestRefused | None:
    """Return the refusal of a request by its HTTP status; None if the error is of another kind."""
    detail = error.error
    is_http_error = classify_loss(error) is not None and detail.message == _HTTP_ERROR_MESSAGE
    if info.status is None or not (is_http_error or (detail.code, detail.message) == _NO_ENDPOINT):
        return None
    if info.status not in _REFUSED or info.status in _RETRYABLE_STATUSES:
        return None
    return RequestRefused(server, info.status, info.retry_after)


def describe_loss(error: MCPError, info: HttpResponseInfo) -> str:
    """Describe what was lost."""
    message = error.error.message
    return message if message != _HTTP_ERROR_MESSAGE or info.status is None else f"{message}: HTTP {info.status}"
