"""Every store against the reference model, rule by rule."""

from pathlib import Path

from raincheck.stores.memory import MemoryStore
from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import StoreMachine


class SqliteMachine(StoreMachine):
    def make_store(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / "tasks.db", synchronous="NORMAL")


class MemoryMachine(StoreMachine):
    """The model against itself: what the machine asserts on its own account holds of the model too."""

    def make_store(self, folder: Path) -> MemoryStore:  # noqa: ARG002 - it needs none
        return MemoryStore()


TestSqliteAgreesWithTheModel = SqliteMachine.TestCase
TestTheModelKeepsItsPromises = MemoryMachine.TestCase
