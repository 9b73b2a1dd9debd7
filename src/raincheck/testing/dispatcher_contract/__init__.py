"""The contract that every way of getting attempts to workers keeps: subclass `DispatcherContract` and name a store.

class TestMyDispatcher(DispatcherContract):
    def store_url(self, folder: Path) -> str:
        return f"mine:{folder}/tasks"
"""

from raincheck.testing.dispatcher_contract.fairness import SharingContract
from raincheck.testing.dispatcher_contract.queue import QueueingContract, SteeringContract
from raincheck.testing.dispatcher_contract.recovery import CrashingContract, OutlivingContract


class DispatcherContract(
    QueueingContract,
    OutlivingContract,
    CrashingContract,
    SteeringContract,
    SharingContract,
):
    """All that gets attempts to workers must do, as tests. What can't be done or seen from outside is left out."""


__all__ = ["DispatcherContract"]
