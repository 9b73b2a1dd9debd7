"""Server-sent events, read byte by byte as they come: an event may be cut anywhere."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass
class Event:
    """One event: its data, and what a client needs to take the stream up again."""

    data: str = ""
    id: str | None = None
    retry: int | None = None


class EventParser:
    """Takes pieces of a stream, and gives the events that they complete."""

    # Not `str.splitlines`: it also splits where JSON may have a plain character, such as U+2028.

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._event = Event()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that end in this piece."""
        self._rest += piece
        # A carriage return at the very end may be half of a line's end.
        whole = self._rest[:-1] if self._rest.endswith(b"\r") else self._rest
        start = 0
        for end in _LINE_END.finditer(whole):
            event = self._take_line(whole[start : end.start()].decode("utf-8", "replace"))
            start = end.end()
            if event is not None:
                yield event
        self._rest = self._rest[start:]

    def _take_line(self, line: str) -> Event | None:
        if not line:
            event, self._event = self._event, Event()
            event.data, self._data = "\n".join(self._data), []
            return event if event != Event() else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id":
            self._event.id = value
        elif name == "retry" and value.isdecimal():
            self._event.retry = int(value)
        return None
