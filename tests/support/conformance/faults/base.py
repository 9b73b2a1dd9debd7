"""How a fault is planted: a kind of the fake server that does one thing wrong, and the check that must find it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from tests.support.conformance.fake_server import FakeServer

Way = Literal["stdio", "http", "owners"]
"""Standard streams; HTTP without a name; HTTP with one, and with somebody else beside."""

Kind = TypeVar("Kind", bound=type[FakeServer])


@dataclass(frozen=True)
class Fault:
    server: type[FakeServer]
    check: str
    """The check that finds it."""

    way: Way
    may: frozenset[str]
    """Others that can't but find it too."""

    @property
    def name(self) -> str:
        return self.server.__name__


def planter(faults: list[Fault]) -> Callable[..., Callable[[Kind], Kind]]:
    """The decorator with which a module plants its faults."""

    def plant(check: str, way: Way = "stdio", may: Sequence[str] = ()) -> Callable[[Kind], Kind]:
        def make(server: Kind) -> Kind:
            faults.append(Fault(server, check, way, frozenset(may)))
            return server

        return make

    return plant
