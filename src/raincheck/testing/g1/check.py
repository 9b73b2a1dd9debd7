"""What a check is, and the decorator that makes one of a function."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from raincheck.testing.g1.caller import Caller
from raincheck.testing.g1.verdicts import Level

Body = Callable[[Caller], Awaitable[None]]


@dataclass(frozen=True)
class Check:
    """One requirement, and how to see whether a server keeps it."""

    id: str
    level: Level
    section: str
    """Where the specification says so: the heading of its page on tasks, or another page and its heading."""

    sentence: str
    """What is required, in a sentence."""

    needs: tuple[str, ...]
    """Roles, capabilities and other circumstances without which there is nothing to check."""

    body: Body


def check(id: str, level: Level, section: str, sentence: str, *needs: str) -> Callable[[Body], Check]:
    """Make a check of a function that raises `Unmet` where the server does not keep the requirement."""

    def make(body: Body) -> Check:
        return Check(id, level, section, sentence, needs, body)

    return make
