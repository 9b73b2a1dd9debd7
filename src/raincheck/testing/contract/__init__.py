"""The contract that every store keeps: subclass `StoreContract` and say how to make yours.

class TestMyStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return MyStore(folder / "tasks")
"""

import pytest

# Where a test kit's helpers assert, pytest shows what was compared, but only if told before they are imported.
pytest.register_assert_rewrite("raincheck.testing.contract")

from raincheck.testing.contract.asking import AskingContract  # noqa: E402
from raincheck.testing.contract.claiming import ClaimingContract  # noqa: E402
from raincheck.testing.contract.committing import CommittingContract  # noqa: E402
from raincheck.testing.contract.creating import CreatingContract  # noqa: E402
from raincheck.testing.contract.hearing import HearingContract  # noqa: E402
from raincheck.testing.contract.keeping import KeepingContract  # noqa: E402
from raincheck.testing.contract.lasting import LastingContract  # noqa: E402
from raincheck.testing.contract.reading import ReadingContract  # noqa: E402


class StoreContract(
    CreatingContract,
    CommittingContract,
    ClaimingContract,
    AskingContract,
    ReadingContract,
    KeepingContract,
    HearingContract,
    LastingContract,
):
    """All that a store must do, as tests. What a store does not declare in its `capabilities` is left out."""


__all__ = ["StoreContract"]
