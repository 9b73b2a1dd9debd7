"""Servers at a URL. What may be secret in that is sent, and neither kept nor shown."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
from mcp.client import Transport
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from raincheck.cli.secrecy import SHORTEST_SECRET
from raincheck.client import note_status
from raincheck.client.errors import NO_SERVER
from raincheck.client.options import name_of

HTTP_TIMEOUT = httpx2.Timeout(30, read=300)
"""Seconds, as the SDK's own client has them: a stream may be silent for long."""

HTTP_OWN_FAULT = 500

STATUSES = {
    401: "it wants to know who you are: give --header 'Authorization: Bearer …'",
    403: "it does not let you in: give another --header 'Authorization: …'",
    404: NO_SERVER,
    405: NO_SERVER,
}
"""What to do about what an HTTP server answers."""

ASKS_WHO = (401, 403)

AGAIN = "or the address with what is secret in it, which is not kept, by --server"


class UrlTarget:
    """Streamable HTTP."""

    ends_with_us = False

    def __init__(self, url: str, headers: Mapping[str, str], *, is_kept: bool) -> None:
        self.name = self.shown = name_of(url) or url
        parts = urlsplit(url)
        self.has_secret = bool("@" in parts.netloc or parts.query)
        self._url = url
        self._is_kept = is_kept
        self._headers = dict(headers)
        self._status = 0

    def connect(self) -> Transport:
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        async with (
            httpx2.AsyncClient(
                headers=self._headers, timeout=HTTP_TIMEOUT, event_hooks={"response": [note_status, self._note]}
            ) as http,
            streamable_http_client(self._url, http_client=http) as streams,
        ):
            yield streams

    async def _note(self, response: httpx2.Response) -> None:
        # The SDK tells that there was an error, and not which.
        self._status = response.status_code

    def last_words(self) -> str:
        return ""

    def hint(self) -> str | None:
        if self._status >= HTTP_OWN_FAULT:
            return f"it has an error of its own (HTTP {self._status}): see what it logs"
        hint = STATUSES.get(self._status)
        return f"{hint}, {AGAIN}" if self._is_kept and self._status in ASKS_WHO else hint

    def cleaned(self, text: str) -> str:
        parts = urlsplit(self._url)
        secrets = [self._url, f"{parts.netloc.rpartition('@')[0]}@", f"?{parts.query}", parts.query, parts.password]
        for secret in secrets:
            if secret is not None and len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, self.name if secret == self._url else "")
        return text
