"""Every store against the reference model, rule by rule."""

from pathlib import Path

import pytest

from raincheck.dispatchers.procrastinate import ProcrastinateJobQueue
from raincheck.stores.memory import MemoryStore
from raincheck.stores.postgres import PostgresStore
from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import StoreMachine
from tests.support.postgres.server import PostgresServer


class SqliteMachine(StoreMachine):
    def make_store(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / "tasks.db", synchronous="NORMAL")


class MemoryMachine(StoreMachine):
    """The model against itself: what the machine asserts on its own account holds of the model too."""

    def make_store(self, folder: Path) -> MemoryStore:  # noqa: ARG002 - it needs none
        return MemoryStore()


class PostgresMachine(StoreMachine):
    server: PostgresServer

    def make_store(self, folder: Path) -> PostgresStore:
        # All runs share a database, each in its own schema: that is faster than a database for each.
        schema = folder.name[-32:]
        return PostgresStore(f"{self.server.url()}?schema={schema}", jobs=ProcrastinateJobQueue(schema), connections=1)

    def teardown(self) -> None:
        super().teardown()
        self.server.run(f'DROP SCHEMA "{self.folder.name[-32:]}" CASCADE')


@pytest.fixture(scope="module", autouse=True)
def server_for_the_machine(postgres_server: PostgresServer) -> None:
    PostgresMachine.server = postgres_server


TestSqliteAgreesWithTheModel = SqliteMachine.TestCase
TestPostgresAgreesWithTheModel = PostgresMachine.TestCase
TestTheModelKeepsItsPromises = MemoryMachine.TestCase
