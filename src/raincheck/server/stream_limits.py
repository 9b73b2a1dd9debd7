"""Limit the streams of a process and the tasks that they follow, in total and per owner, so that all get slots."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from raincheck.core.owner import Owner
from raincheck.server.errors import over_limit
from raincheck.server.identity import UNVERIFIED_KINDS


@dataclass(frozen=True, slots=True)
class StreamLimit:
    """Most streams, and most tasks that they follow."""

    streams: int
    tasks: int


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits in total, for unverified callers and per owner."""

    total: StreamLimit
    for_unverified: StreamLimit
    """For all of them together: any of them can appear as any number of owners."""
    per_owner: StreamLimit


STREAM_LIMITS = StreamLimits(StreamLimit(1_000, 10_000), StreamLimit(500, 5_000), StreamLimit(100, 1_000))
"""Limits for streams that push changes of tasks."""

RESULT_LIMITS = StreamLimits(StreamLimit(10_000, 10_000), StreamLimit(5_000, 5_000), StreamLimit(2_000, 2_000))
"""Limits for requests that wait for the result of one task. They cost next to nothing."""


@dataclass(slots=True)
class StreamLease:
    """The slots that one stream holds."""

    slots: "StreamSlots"
    holder: str
    tasks: int

    def shrink(self, tasks: int) -> None:
        """Reduce the tasks of the stream to fewer than it asked for."""
        self.slots.tasks -= Counter({self.holder: self.tasks - tasks})
        self.tasks = tasks


class StreamSlots:
    """The slots for streams in one process. A stream acquires its slots before anything is looked up."""

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self.streams: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()
        """By holder."""

    @contextmanager
    def acquire(self, owner: Owner, tasks: int) -> Generator[StreamLease]:
        """Hold slots for a stream.

        Raises:
            MCPError: no slot is free.
        """
        is_stranger = owner.kind in UNVERIFIED_KINDS
        rooms = self._limits
        who, room = ("", rooms.for_unverified) if is_stranger else (owner.key, rooms.per_owner)
        for limit, taken, wanted, theirs, most in (
            ("streams", self.streams, 1, room.streams, rooms.total.streams),
            ("followed tasks", self.tasks, tasks, room.tasks, rooms.total.tasks),
        ):
            bound = theirs if taken[who] + wanted > theirs else most if taken.total() + wanted > most else None
            if bound is not None:
                raise over_limit(f"too many {limit} at once: try again later, or poll", limit, bound, None)
        self.streams[who] += 1
        self.tasks[who] += tasks
        place = StreamLease(self, who, tasks)
        try:
            yield place
        finally:
            self.streams -= Counter({who: 1})
            self.tasks -= Counter({who: place.tasks})
