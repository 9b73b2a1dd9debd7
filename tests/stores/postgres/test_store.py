"""The PostgreSQL store passes the store contract."""

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
        """Return the store for a folder: the default schema for the first, a separate schema for each further one."""
        if folder not in self.folders:
            self.folders.append(folder)
        number = self.folders.index(folder)
        return PostgresStore(f"{self.url}?schema=folder_{number}" if number else self.url)
