"""Contract suite for dispatchers: subclass `DispatcherContract` and name a store.

class TestMyDispatcher(DispatcherContract):
    def store_url(self, folder: Path) -> str:
        return f"mine:{folder}/tasks"
"""

from raincheck.testing.dispatcher_contract.fairness import FairnessContract
from raincheck.testing.dispatcher_contract.queue import ControlContract, JobQueueContract
from raincheck.testing.dispatcher_contract.recovery import DatabaseCrashContract, WorkerCrashContract


class DispatcherContract(
    JobQueueContract,
    WorkerCrashContract,
    DatabaseCrashContract,
    ControlContract,
    FairnessContract,
):
    """Tests of everything that a dispatcher must do. Tests whose hook is not overridden are skipped."""


__all__ = ["DispatcherContract"]
