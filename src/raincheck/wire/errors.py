"""JSON-RPC errors: the codes that raincheck sends, and the error of a failed task."""

from typing import NotRequired, TypedDict

from raincheck.core.payload import Json
from raincheck.core.records import View
from raincheck.wire.fields import as_object, outcome_of

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

HEADER_MISMATCH = -32020
"""A header of the request contradicts its body."""

MISSING_CAPABILITY = -32021
"""The caller did not declare, on this request, a capability that the answer needs."""

# The protocol has no code for this. JSON-RPC leaves -32000 to -32099 to servers, and MCP assigns codes from -32020 on.
# This code lies below that range, where neither of them will ever assign another meaning.
QUOTA_EXCEEDED = -32010
"""The caller has too many tasks, or creates them too fast. The same request may succeed later."""

CANCELLED = -32000
"""The task was cancelled while its caller waits for its result."""

STORE_UNAVAILABLE = "the server can't get at its tasks now: try again later"
"""The message sent with INTERNAL_ERROR while a server's store is unavailable. The same request may succeed later."""


class JsonRpcError(TypedDict):
    """A JSON-RPC error object."""

    code: int
    message: str
    data: NotRequired[Json]


def error_of(view: View) -> JsonRpcError:
    """Return the error that a failed task ended with: the one that its body chose, or an internal error."""
    told = as_object(outcome_of(view))
    message = told.get("message")
    if not isinstance(message, str) or not message:
        message = view.task.status_message or "the task failed without a reason"
    code, data = told.get("code"), told.get("data")
    if told.get("kind") != "protocol" or not isinstance(code, int) or isinstance(code, bool):
        error_id = told.get("error_id")
        code, data = INTERNAL_ERROR, None if error_id is None else {"errorId": error_id}
    error: JsonRpcError = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return error


def is_protocol_error(view: View) -> bool:
    """Return whether a failed task's body chose its error itself, as an error of the protocol."""
    return as_object(outcome_of(view)).get("kind") == "protocol"
