"""Values that can't be taken, and too many of them."""

import math
from collections.abc import Iterable
from datetime import timedelta

from raincheck.errors.base import RaincheckError


class InvalidValue(RaincheckError, ValueError):
    """A value that can't be taken as it is."""


class NotJson(InvalidValue):
    """A value that JSON can't carry."""


class PayloadSealed(InvalidValue):
    """The payload is encrypted, and it was read without its key."""


class TooLarge(InvalidValue):
    """A value beyond its bound. Nothing was written."""

    def __init__(self, what: str, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(f"{what} has {size:,} {unit}, and {limit:,} are allowed: send less, or raise the limit")
        self.what = what
        self.size = size
        self.limit = limit


class UnknownTool(InvalidValue):
    """There is no tool of that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no tool {name!r}: there is {', '.join(sorted(known)) or 'none at all'}")
        self.name = name


class QuotaExceeded(RaincheckError):
    """The owner has reached a limit on tasks. Nothing was created."""

    def __init__(self, which: str, limit: int, retry_after: timedelta | None) -> None:
        when = "when one of them has ended" if retry_after is None else f"in {math.ceil(retry_after.total_seconds())} s"
        super().__init__(f"too many {which} (at most {limit} for one owner): try again {when}")
        self.which = which
        self.limit = limit
        self.retry_after = retry_after
