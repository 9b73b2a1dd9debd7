"""The statuses of HTTP behind errors. The SDK tells that there was one, and not which.

Whoever sends a request leaves a note for its status in the context. The SDK sends it in a copy of that context, so a
hook of the HTTP client finds the note of just this request. All of it can go when the SDK tells the status.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

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
