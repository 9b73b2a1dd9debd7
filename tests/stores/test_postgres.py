"""The PostgreSQL store keeps the contract of all stores."""

from hashlib import blake2b
from pathlib import Path

import pytest

from raincheck.stores.postgres import PostgresStore
from raincheck.testing import StoreContract


class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def on_a_database(self, database_url: str) -> None:
        self.url = database_url

    def make_store(self, folder: Path) -> PostgresStore:
        schema = blake2b(bytes(folder), digest_size=8).hexdigest()
        return PostgresStore(f"{self.url}?schema={schema}")
