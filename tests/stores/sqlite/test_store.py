from pathlib import Path

from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import StoreContract


class TestSqliteStore(StoreContract):
    def make_store(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / "tasks.db")
