"""How the SDK tells that a request got no answer. Its codes for that are ones that servers use too, so words count."""

from enum import Enum, auto

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, REQUEST_TIMEOUT


class Loss(Enum):
    """What was lost."""

    OF_THE_ANSWER = auto()
    """The next request may well be answered."""
    OF_THE_CONNECTION = auto()
    """Nothing more will come over this one, or the server has forgotten its session."""


_WORDS = (
    (CONNECTION_CLOSED, "Connection closed", Loss.OF_THE_CONNECTION),
    (INVALID_REQUEST, "Session terminated", Loss.OF_THE_CONNECTION),
    # What servers themselves say of a session: the SDKs for Python and for TypeScript.
    (INVALID_REQUEST, "Session not found", Loss.OF_THE_CONNECTION),
    (REQUEST_TIMEOUT, "Session not found", Loss.OF_THE_CONNECTION),
    (CONNECTION_CLOSED, "SSE stream", Loss.OF_THE_ANSWER),
    (INTERNAL_ERROR, "Server returned an error response", Loss.OF_THE_ANSWER),
    (REQUEST_TIMEOUT, "Request '", Loss.OF_THE_ANSWER),
    (REQUEST_TIMEOUT, "Timed out after", Loss.OF_THE_ANSWER),
)


def loss_of(error: MCPError) -> Loss | None:
    """What was lost; None if the server has answered, with this error."""
    told = error.error
    if told.data is not None:
        return None
    return next((loss for code, words, loss in _WORDS if told.code == code and told.message.startswith(words)), None)
