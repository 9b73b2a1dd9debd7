"""The contract that every store keeps: subclass `StoreContract` and say how to make yours.

class TestMyStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return MyStore(folder / "tasks")
"""

from raincheck.testing.store_contract.claim import ClaimingContract
from raincheck.testing.store_contract.commit import CommittingContract
from raincheck.testing.store_contract.create import CreatingContract, SpawningContract
from raincheck.testing.store_contract.direct_start import OfferingContract
from raincheck.testing.store_contract.durability import LastingContract
from raincheck.testing.store_contract.fair_queue import QueueingContract
from raincheck.testing.store_contract.families import BelongingContract
from raincheck.testing.store_contract.inputs import AskingContract
from raincheck.testing.store_contract.instances import ProcessingContract
from raincheck.testing.store_contract.metadata import LearningContract, RememberingContract, SigningContract
from raincheck.testing.store_contract.reads import HearingContract, ReadingContract
from raincheck.testing.store_contract.retention import KeepingContract, ReleasingContract


class StoreContract(
    CreatingContract,
    OfferingContract,
    ReleasingContract,
    CommittingContract,
    ClaimingContract,
    QueueingContract,
    AskingContract,
    SpawningContract,
    BelongingContract,
    ReadingContract,
    KeepingContract,
    HearingContract,
    LastingContract,
    SigningContract,
    LearningContract,
    ProcessingContract,
    RememberingContract,
):
    """All that a store must do, as tests. What a store does not declare in its `capabilities` is left out."""


__all__ = ["StoreContract"]
