"""The limit on the size of one response that a client reads, over HTTP."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import httpx2

from raincheck.client.errors import ResponseTooLarge
from raincheck.errors import ConfigurationError

MAX_RESPONSE_BYTES = 64 * 2**20
"""The default limit: 64 MiB. Reading, parsing and printing a response takes about five times its size in memory."""

EVENT_STREAM = "text/event-stream"


def check_max_response_bytes(max_bytes: int) -> int:
    """Return a limit that is valid.

    Raises:
        ConfigurationError: it allows no response.
    """
    if max_bytes < 1:
        raise ConfigurationError(f"max_response_bytes is {max_bytes}, which allows no response: set it to at least 1")
    return max_bytes


class _BodyTooLarge(httpx2.StreamError):
    """A body exceeds the limit. The SDK ends the request with an error if a body raises this class."""


class _LimitedBody(httpx2.AsyncByteStream):
    """The decoded body of a response, up to the limit."""

    def __init__(
        self, response: httpx2.Response, max_bytes: int, on_too_large: Callable[[ResponseTooLarge], None]
    ) -> None:
        self._body = response.stream
        self._declared = _content_length(response)
        # Decodes the body, however little of it was sent compressed.
        self._decoded = httpx2.Response(response.status_code, headers=response.headers, stream=self._body)
        self._max_bytes = max_bytes
        self._on_too_large = on_too_large

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        if self._declared is not None and self._declared > self._max_bytes:
            raise self._error(self._declared)
        size = 0
        async for chunk in self._decoded.aiter_bytes():
            size += len(chunk)
            if size > self._max_bytes:
                raise self._error(None)
            yield chunk

    def _error(self, size: int | None) -> _BodyTooLarge:
        error = ResponseTooLarge(size, self._max_bytes)
        self._on_too_large(error)
        return _BodyTooLarge(str(error))

    async def aclose(self) -> None:
        if isinstance(self._body, httpx2.AsyncByteStream):
            await self._body.aclose()


def response_limiter(
    max_bytes: int, on_too_large: Callable[[ResponseTooLarge], None]
) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return a response hook that limits each body. Events of a stream are limited by the SDK's transport."""

    async def limit(response: httpx2.Response) -> None:
        if not response.headers.get("content-type", "").lower().startswith(EVENT_STREAM):
            response.stream = _LimitedBody(response, max_bytes, on_too_large)
            response.headers.pop("content-encoding", None)

    return limit


def _content_length(response: httpx2.Response) -> int | None:
    """Return the size that the server declares for a body that is not compressed."""
    declared = response.headers.get("content-length", "")
    is_plain = "content-encoding" not in response.headers
    return int(declared) if is_plain and declared.isascii() and declared.isdigit() else None
