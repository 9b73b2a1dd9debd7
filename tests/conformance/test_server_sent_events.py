"""Server-sent events are parsed as the standard requires, however the stream is cut."""

import pytest

from raincheck.conformance.transport.http import ServerSentEvent, ServerSentEventParser

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
    ServerSentEvent(data='"a line separator: \u2028 and \x85 are no line ends"'),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_events_do_not_depend_on_how_the_stream_is_cut(size: int) -> None:
    parser = ServerSentEventParser()
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS
