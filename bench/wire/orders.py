"""The orders to the client, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bench.wire.requests import Generation

Operation: TypeAlias = Literal[
    "call", "create", "get", "get working", "cancel", "update", "result", "all done", "fill", "leave", "told", "polled"
]


@dataclass(frozen=True, slots=True)
class Order:
    """An operation to measure, until the seconds or the count are reached."""

    port: int
    generation: Generation
    operation: Operation
    callers: int
    seconds: float
    """For `told` and `polled`: the length of a task."""
    count: int


@dataclass(frozen=True, slots=True)
class OrderResult:
    """The number of operations and the seconds that they took, and for `told` and `polled` the delay of each."""

    count: int
    seconds: float
    late: Sequence[float] = ()
    lasted: Sequence[float] = ()
    """The length of each task in seconds."""

    @property
    def rate(self) -> float:
        return self.count / self.seconds
