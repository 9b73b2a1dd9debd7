"""Server-sent events are parsed as the standard requires, however the stream is cut."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from httpx2 import EventSource, ServerSentEvent

STREAM = (
    b": a comment\r\n\r\n"
    b"id: 1\nretry: 250\ndata:\n\n"
    b'event: message\rid: 2\rdata: {"a":\rdata: 1}\r\r'
    + 'data: "a line separator: \u2028 and \x85 are no line ends"\n\n'.encode()
    + b"data: cut off"
)
EVENTS = [
    ServerSentEvent(id="1", retry=250),
    ServerSentEvent(data='{"a":\n1}', id="2"),
    ServerSentEvent(data='"a line separator: \u2028 and \x85 are no line ends"', id="2"),
]


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
async def test_events_do_not_depend_on_how_the_stream_is_cut(size: int) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(STREAM), size):
            yield STREAM[start : start + size]

    request = httpx2.Request("GET", "http://127.0.0.1/mcp")
    headers = {"content-type": "text/event-stream"}
    response = httpx2.Response(200, headers=headers, content=pieces(), request=request)
    assert [event async for event in EventSource(response, max_event_size=None)] == EVENTS
