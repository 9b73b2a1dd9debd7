"""What the client is ordered to do, and what it tells of it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from bench.wire.requests import Generation

Operation: TypeAlias = Literal["call", "create", "get", "get working", "cancel", "update", "result", "all done"]


@dataclass(frozen=True, slots=True)
class Order:
    """What to measure: for so many seconds, or so often, whatever comes first."""

    port: int
    generation: Generation
    operation: Operation
    callers: int
    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class Told:
    """How often it was done, and how many seconds that took."""

    count: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds
