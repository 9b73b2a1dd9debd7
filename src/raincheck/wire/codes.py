"""The codes of JSON-RPC errors that are sent."""

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
