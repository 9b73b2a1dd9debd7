"""The contract that every store keeps: subclass `StoreContract` and say how to make yours.

class TestMyStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return MyStore(folder / "tasks")
"""

from raincheck.testing.contract.asking import AskingContract
from raincheck.testing.contract.belonging import BelongingContract
from raincheck.testing.contract.claiming import ClaimingContract
from raincheck.testing.contract.committing import CommittingContract
from raincheck.testing.contract.creating import CreatingContract
from raincheck.testing.contract.hearing import HearingContract
from raincheck.testing.contract.keeping import KeepingContract
from raincheck.testing.contract.lasting import LastingContract
from raincheck.testing.contract.learning import LearningContract
from raincheck.testing.contract.offering import OfferingContract
from raincheck.testing.contract.processing import ProcessingContract
from raincheck.testing.contract.queueing import QueueingContract
from raincheck.testing.contract.reading import ReadingContract
from raincheck.testing.contract.releasing import ReleasingContract
from raincheck.testing.contract.remembering import RememberingContract
from raincheck.testing.contract.signing import SigningContract
from raincheck.testing.contract.spawning import SpawningContract


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
