"""Planted faults: subclasses of the fake server that do one thing wrong, with the check that must find it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from tests.support.conformance.fake_server import FakeServer

Mode = Literal["stdio", "http", "owners"]
"""Stdio; HTTP without credentials; HTTP with credentials, and with a second caller."""

Kind = TypeVar("Kind", bound=type[FakeServer])


@dataclass(frozen=True)
class Fault:
    server: type[FakeServer]
    check: str
    """The check that finds it."""

    mode: Mode
    may_fail: frozenset[str]
    """Other checks that unavoidably find it too."""

    @property
    def name(self) -> str:
        return self.server.__name__


def planter(faults: list[Fault]) -> Callable[..., Callable[[Kind], Kind]]:
    """Return the decorator that adds a fault to the list of its module."""

    def plant(check: str, mode: Mode = "stdio", may_fail: Sequence[str] = ()) -> Callable[[Kind], Kind]:
        def make(server: Kind) -> Kind:
            faults.append(Fault(server, check, mode, frozenset(may_fail)))
            return server

        return make

    return plant
