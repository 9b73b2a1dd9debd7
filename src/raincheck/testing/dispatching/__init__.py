"""The contract that every way of getting attempts to workers keeps: subclass `DispatcherContract` and name a store.

class TestMyDispatcher(DispatcherContract):
    def store_url(self, folder: Path) -> str:
        return f"mine:{folder}/tasks"
"""

from raincheck.testing.dispatching.crashing import CrashingContract
from raincheck.testing.dispatching.outliving import OutlivingContract
from raincheck.testing.dispatching.queueing import QueueingContract
from raincheck.testing.dispatching.sharing import SharingContract
from raincheck.testing.dispatching.steering import SteeringContract


class DispatcherContract(
    QueueingContract,
    OutlivingContract,
    CrashingContract,
    SteeringContract,
    SharingContract,
):
    """All that gets attempts to workers must do, as tests. What can't be done or seen from outside is left out."""


__all__ = ["DispatcherContract"]
