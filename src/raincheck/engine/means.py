"""What everything in an engine works with."""

from dataclasses import dataclass

from raincheck.clock import Clock
from raincheck.core.limits import Limits
from raincheck.stores.interface import Store


@dataclass(frozen=True, slots=True)
class Means:
    """What all attempts of an engine share."""

    store: Store
    clock: Clock
    limits: Limits
