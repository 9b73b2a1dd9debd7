"""The PostgreSQL store keeps the contract of all stores."""

from pathlib import Path

import pytest

from raincheck.stores.postgres import PostgresStore
from raincheck.testing import StoreContract


class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def on_a_database(self, store_url: str) -> None:
        self.url = store_url
        self.folders: list[Path] = []

    def make_store(self, folder: Path) -> PostgresStore:
        """Return the store of a folder: the one in the database, and after it one in a schema of its own for each."""
        if folder not in self.folders:
            self.folders.append(folder)
        number = self.folders.index(folder)
        return PostgresStore(f"{self.url}?schema=folder_{number}" if number else self.url)
