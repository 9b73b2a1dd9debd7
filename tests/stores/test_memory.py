from pathlib import Path

import pytest

from raincheck.core.commands import Claim
from raincheck.core.decide import decide
from raincheck.core.limits import NO_QUOTA
from raincheck.core.records import TaskId
from raincheck.stores.memory import MemoryStore
from raincheck.stores.memory.documents import IndexedDocuments
from raincheck.testing import FakeClock, Scene, StoreContract
from raincheck.testing.scene import LEASE


class TestMemoryStore(StoreContract):
    def make_store(self, folder: Path) -> MemoryStore:  # noqa: ARG002 - it needs none
        return MemoryStore()


def test_a_transaction_that_fails_leaves_places_and_lines_as_they_were() -> None:
    documents, clock = IndexedDocuments(), FakeClock()
    scene = Scene(MemoryStore(), clock)
    tasks = [documents.create(scene.creation(), NO_QUOTA, clock.now()) for _ in range(3)]
    before, served = documents.line(), documents.served

    def fail() -> None:
        with documents.transaction():
            begun = [decide(task, Claim("worker", LEASE), clock.now()) for task in tasks[:2]]
            documents.take([change for change in begun if change is not None])
            documents.create(scene.creation(id=TaskId("new")), NO_QUOTA, clock.now())
            assert documents.served != served
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (documents.line(), documents.served) == (before, served)
    last = documents.create(scene.creation(), NO_QUOTA, clock.now())
    assert documents[last.id].turn == 4
