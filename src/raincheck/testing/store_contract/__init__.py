"""Contract suite for stores: subclass `StoreContract` and override `make_store`.

class TestMyStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return MyStore(folder / "tasks")
"""

from raincheck.testing.store_contract.claim import ClaimContract
from raincheck.testing.store_contract.commit import CommitContract
from raincheck.testing.store_contract.create import CreateContract, SpawnContract
from raincheck.testing.store_contract.direct_start import DirectStartContract, QueuedOfferContract
from raincheck.testing.store_contract.durability import DurabilityContract
from raincheck.testing.store_contract.fair_queue import FairQueueContract
from raincheck.testing.store_contract.families import FamilyContract
from raincheck.testing.store_contract.inputs import InputContract
from raincheck.testing.store_contract.instances import InstanceContract
from raincheck.testing.store_contract.metadata import DefinitionContract, DurationContract, SecretContract
from raincheck.testing.store_contract.reads import ChangeFeedContract, ReadContract
from raincheck.testing.store_contract.retention import KeyReleaseContract, RetentionContract


class StoreContract(
    CreateContract,
    DirectStartContract,
    QueuedOfferContract,
    KeyReleaseContract,
    CommitContract,
    ClaimContract,
    FairQueueContract,
    InputContract,
    SpawnContract,
    FamilyContract,
    ReadContract,
    RetentionContract,
    ChangeFeedContract,
    DurabilityContract,
    SecretContract,
    DurationContract,
    InstanceContract,
    DefinitionContract,
):
    """Tests of everything that a store must do. Tests of undeclared `capabilities` are skipped."""


__all__ = ["StoreContract"]
