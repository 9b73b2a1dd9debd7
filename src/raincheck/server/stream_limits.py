"""How many streams a process serves, and for how many tasks: for all, and for each owner, so that others have room."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from raincheck.core.owner import Owner
from raincheck.server.errors import over_limit
from raincheck.server.identity import UNVERIFIED


@dataclass(frozen=True, slots=True)
class Room:
    """For how many there is room."""

    streams: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Rooms:
    """Who has how much of it."""

    for_all: Room
    for_strangers: Room
    """Together: any of them can be as many owners as they like."""
    for_each: Room


STREAMS = Rooms(Room(1_000, 10_000), Room(500, 5_000), Room(100, 1_000))
"""Streams that push changes of tasks."""

RESULTS = Rooms(Room(10_000, 10_000), Room(5_000, 5_000), Room(2_000, 2_000))
"""Requests that wait for the result of one task. They do next to nothing."""


@dataclass(slots=True)
class Place:
    """What one stream takes up."""

    places: "Places"
    who: str
    tasks: int

    def shrink(self, tasks: int) -> None:
        """It is for fewer tasks than it was asked for."""
        self.places.tasks -= Counter({self.who: self.tasks - tasks})
        self.tasks = tasks


class Places:
    """The streams of one process. A place is taken before anything is looked for."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self.streams: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()
        """By who has them."""

    @contextmanager
    def taken(self, owner: Owner, tasks: int) -> Generator[Place]:
        """Hold a place for a stream.

        Raises:
            MCPError: there is none.
        """
        is_stranger = owner.kind in UNVERIFIED
        rooms = self._rooms
        who, room = ("", rooms.for_strangers) if is_stranger else (owner.key, rooms.for_each)
        for limit, taken, wanted, theirs, most in (
            ("streams", self.streams, 1, room.streams, rooms.for_all.streams),
            ("followed tasks", self.tasks, tasks, room.tasks, rooms.for_all.tasks),
        ):
            bound = theirs if taken[who] + wanted > theirs else most if taken.total() + wanted > most else None
            if bound is not None:
                raise over_limit(f"too many {limit} at once: try again later, or poll", limit, bound, None)
        self.streams[who] += 1
        self.tasks[who] += tasks
        place = Place(self, who, tasks)
        try:
            yield place
        finally:
            self.streams -= Counter({who: 1})
            self.tasks -= Counter({who: place.tasks})
