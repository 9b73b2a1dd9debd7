"""How the SDK tells that a request got no answer. Its codes for that are ones that servers use too, so words count.

The statuses of HTTP behind errors. The SDK tells that there was one, and not which.

Whoever sends a request leaves a note for its status in the context. The SDK sends it in a copy of that context, so a
hook of the HTTP client finds the note of just this request. All of it can go when the SDK tells the status.

Why a server does not cancel a task: a process of a workflow is cancelled where its workflow says so.
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
from raincheck.wire.fields import REFUSED, as_object

if TYPE_CHECKING:
    import httpx2


@dataclass(slots=True)
class Noted:
    """What the last answer to a request was, as HTTP has it."""

    status: int | None = None
    """None where that is not HTTP, or its client has no hook."""
    retry_after: float | None = None
    """Seconds for which the server would not be asked again."""


_noted: ContextVar[Noted | None] = ContextVar("raincheck_http_status", default=None)


@contextmanager
def noting(noted: Noted) -> Generator[None]:
    """Note what is answered to the requests that are sent meanwhile."""
    before = _noted.set(noted)
    try:
        yield
    finally:
        _noted.reset(before)


async def note_status(response: "httpx2.Response") -> None:
    """A hook for an HTTP client of your own, so that a 401 is told as one, and at once.

    httpx2.AsyncClient(headers=…, event_hooks={"response": [note_status]})
    """
    noted = _noted.get()
    if noted is not None:
        noted.status = response.status_code
        after = response.headers.get("retry-after", "")
        # A date is by the server's clock, which may be another.
        noted.retry_after = float(after) if after.isascii() and after.isdigit() else None


@asynccontextmanager
async def over_http(url: str, headers: Mapping[str, str] | None = None) -> AsyncGenerator[TransportStreams]:
    """The SDK's connection to a URL, with the hook."""
    # In a thread: it reads certificates.
    http = await asyncio.to_thread(create_mcp_http_client, headers=None if headers is None else dict(headers))
    async with http:
        http.event_hooks = {"response": [note_status]}
        async with streamable_http_client(url, http_client=http) as streams:
            yield streams


ENDED = "already-completed"
"""The reason where there is nothing left to cancel."""

SPOKEN = re.compile(r"can't be cancelled \(([\w-]+)\): (.*?)(?:\. It goes on\.)?$", re.DOTALL)
"""The reason, and why, in the words of a server."""


def check_acknowledged(task_id: str, meta: dict[str, Any] | None) -> None:
    """See whether a cancel that was acknowledged came to nothing.

    Raises:
        CancelRefused: it did, and the task goes on.
    """
    refused = read_refusal(task_id, (meta or {}).get(REFUSED))
    if refused is not None and refused.reason != ENDED:
        raise refused


def check_spoken(task_id: str, text: str) -> None:
    """See whether a server says in words that it does not cancel a task.

    Raises:
        CancelRefused: it does, and the task goes on.
    """
    found = SPOKEN.search(text)
    if found is not None:
        raise CancelRefused(task_id, found[1], found[2])


def read_refusal(task_id: str, said: Any) -> CancelRefused | None:  # noqa: ANN401 - whatever a server says
    """What a server says for programs; None if it is something else."""
    reason, message = (as_object(said).get(name) for name in ("reason", "message"))
    if not isinstance(reason, str) or not isinstance(message, str):
        return None
    found = SPOKEN.search(message)
    return CancelRefused(task_id, reason, message if found is None else found[2])


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
    return (error.error.code, error.error.message) == (errors.INTERNAL_ERROR, errors.AWAY)


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
