"""How the SDK tells that a request got no answer. Its codes for that are ones that servers use too, so words count."""

from enum import Enum, auto

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from raincheck.client.errors import RequestRefused
from raincheck.client.statuses import Noted
from raincheck.wire import codes


class Loss(Enum):
    """What was lost."""

    OF_THE_ANSWER = auto()
    """The next request may well be answered."""
    OF_THE_CONNECTION = auto()
    """Nothing more will come over this one, or the server has forgotten its session."""


_OF_HTTP = "Server returned an error response"
"""Of a status from 400 on, except 404 and where the answer has an error of MCP in it."""

_NO_ENDPOINT = (METHOD_NOT_FOUND, "Not Found")
"""Of 404 where there is no session that it could be about."""

TOO_MANY = 429

_REFUSED = range(400, 500)
_NOT_HEARD = (408, 425)
"""Of those, the ones that say that a request did not arrive, or not in time."""

_WORDS = (
    (CONNECTION_CLOSED, "Connection closed", Loss.OF_THE_CONNECTION),
    (INVALID_REQUEST, "Session terminated", Loss.OF_THE_CONNECTION),
    # What servers themselves say of a session: the SDKs for Python and for TypeScript.
    (INVALID_REQUEST, "Session not found", Loss.OF_THE_CONNECTION),
    (REQUEST_TIMEOUT, "Session not found", Loss.OF_THE_CONNECTION),
    (CONNECTION_CLOSED, "SSE stream", Loss.OF_THE_ANSWER),
    (INTERNAL_ERROR, _OF_HTTP, Loss.OF_THE_ANSWER),
    (REQUEST_TIMEOUT, "Request '", Loss.OF_THE_ANSWER),
    (REQUEST_TIMEOUT, "Timed out after", Loss.OF_THE_ANSWER),
)


def loss_of(error: MCPError) -> Loss | None:
    """What was lost; None if the server has answered, with this error."""
    told = error.error
    if told.data is not None:
        return None
    return next((loss for code, words, loss in _WORDS if told.code == code and told.message.startswith(words)), None)


def is_away(error: MCPError) -> bool:
    """Whether the server says that it can't get at its tasks just now: then it is as if it had not answered."""
    return (error.error.code, error.error.message) == (codes.INTERNAL_ERROR, codes.AWAY)


def refusal_of(server: str, error: MCPError, noted: Noted) -> RequestRefused | None:
    """That the server does not take a request, by its status of HTTP; None if it is something else."""
    told = error.error
    is_of_http = loss_of(error) is not None and told.message == _OF_HTTP
    if noted.status is None or not (is_of_http or (told.code, told.message) == _NO_ENDPOINT):
        return None
    if noted.status not in _REFUSED or noted.status in _NOT_HEARD:
        return None
    return RequestRefused(server, noted.status, noted.retry_after)


def words_of(error: MCPError, noted: Noted) -> str:
    """What was lost, in words."""
    words = error.error.message
    return words if words != _OF_HTTP or noted.status is None else f"{words}: HTTP {noted.status}"
