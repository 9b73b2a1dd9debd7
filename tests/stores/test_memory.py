from pathlib import Path

from raincheck.stores.memory import MemoryStore
from raincheck.testing import StoreContract


class TestMemoryStore(StoreContract):
    def make_store(self, folder: Path) -> MemoryStore:  # noqa: ARG002 - it needs none
        return MemoryStore()
