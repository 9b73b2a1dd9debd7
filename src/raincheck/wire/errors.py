"""The JSON-RPC error of a failed task, from whatever its attempts left.

The codes of JSON-RPC errors that are sent.
"""

from typing import NotRequired, TypedDict

from raincheck.core.payload import Json
from raincheck.core.records import View
from raincheck.wire.fields import as_object, outcome_of

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

HEADER_MISMATCH = -32020
"""A header of the request says something else than its body."""

MISSING_CAPABILITY = -32021
"""The caller did not declare, on this request, what the answer would need."""

# The protocol has no word for this. JSON-RPC leaves -32000 to -32099 to servers, of which MCP gives out -32020 and on;
# so this one lies below, where neither of them will ever mean something else.
OVER_LIMIT = -32010
"""The caller has too many tasks, or makes them too fast: the same request may succeed later."""

CANCELLED = -32000
"""The task was cancelled, and its caller waits for its result."""

AWAY = "the server can't get at its tasks now: try again later"
"""What comes with INTERNAL_ERROR while a server's store is away: the same request may succeed later."""


class Error(TypedDict):
    """An error of JSON-RPC."""

    code: int
    message: str
    data: NotRequired[Json]


def error_of(view: View) -> Error:
    """The error that a failed task ended with: as its body chose it, or an internal one."""
    told = as_object(outcome_of(view))
    message = told.get("message")
    if not isinstance(message, str) or not message:
        message = view.task.status_message or "the task failed without a reason"
    code, data = told.get("code"), told.get("data")
    if told.get("kind") != "protocol" or not isinstance(code, int) or isinstance(code, bool):
        error_id = told.get("error_id")
        code, data = INTERNAL_ERROR, None if error_id is None else {"errorId": error_id}
    error: Error = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return error


def chose_its_error(view: View) -> bool:
    """Whether the error of a failed task is one that its body chose, in the protocol's own words."""
    return as_object(outcome_of(view)).get("kind") == "protocol"
