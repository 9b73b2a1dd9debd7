"""JSON-RPC errors: the codes that raincheck sends, and the error of a failed task."""

from raincheck.core.records import View
from raincheck.wire.fields import as_object, outcome_of
from raincheck.wire.v2026_types import Error

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

HEADER_MISMATCH = -32020
"""A header of the request contradicts its body."""

MISSING_CAPABILITY = -32021
"""The request did not declare a capability that its answer needs."""

# The protocol has no code for this. JSON-RPC leaves -32000 to -32099 to servers, and MCP assigns codes from -32020 on.
# This code is in the range of servers and outside that of MCP, so neither will assign it another meaning.
QUOTA_EXCEEDED = -32010
"""The caller has too many tasks, or creates them too fast. The same request may succeed later."""

CANCELLED = -32000
"""The task was cancelled, so it has no result."""

STORE_UNAVAILABLE = "the server can't reach its task store: try again later"
"""The message sent with INTERNAL_ERROR while a server's store is unavailable. The same request may succeed later."""


def error_of(view: View) -> Error:
    """Return the error of a failed task: the protocol error that its body raised, or an internal error."""
    details = as_object(outcome_of(view))
    message = details.get("message")
    if not isinstance(message, str) or not message:
        message = view.task.status_message or "the task failed without a reason"
    code, data = details.get("code"), details.get("data")
    if details.get("kind") != "protocol" or not isinstance(code, int) or isinstance(code, bool):
        error_id = details.get("error_id")
        code, data = INTERNAL_ERROR, None if error_id is None else {"errorId": error_id}
    error: Error = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return error


def is_protocol_error(view: View) -> bool:
    """Return whether a failed task's error is a protocol error that its body raised."""
    return as_object(outcome_of(view)).get("kind") == "protocol"
