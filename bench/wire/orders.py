"""What the client is ordered to do, and what it tells of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bench.wire.requests import Generation

Operation: TypeAlias = Literal[
    "call", "create", "get", "get working", "cancel", "update", "result", "all done", "fill", "leave", "told", "polled"
]


@dataclass(frozen=True, slots=True)
class Order:
    """What to measure: for so many seconds, or so often, whatever comes first."""

    port: int
    generation: Generation
    operation: Operation
    callers: int
    seconds: float
    """Where it is measured how late something is known: how long that takes itself."""
    count: int


@dataclass(frozen=True, slots=True)
class Told:
    """How often it was done, and how many seconds that took; or how many seconds late each was known."""

    count: int
    seconds: float
    late: Sequence[float] = ()
    lasted: Sequence[float] = ()
    """How many seconds each took itself."""

    @property
    def rate(self) -> float:
        return self.count / self.seconds
