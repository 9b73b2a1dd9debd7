import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raincheck.core.change import Creation
from raincheck.core.commands import Cancel, Claim
from raincheck.core.decide import decide
from raincheck.core.policies import NO_QUOTA, Quota, Retention
from raincheck.core.records import Task, TaskId
from raincheck.errors import RaincheckError
from raincheck.stores.documents import Documents
from raincheck.stores.memory import IndexedDocuments, MemoryStore
from raincheck.stores.requests import ClaimRequest
from raincheck.testing import FakeClock, StoreContract, StoreHarness, StoreMachine
from raincheck.testing.harness import ALICE, BOB, LEASE
from raincheck.testing.store_contract.direct_start import DirectStartContract

QUOTA = Quota(live=3, created=4, window=timedelta(seconds=4))


class TestMemoryStore(StoreContract):
    def make_store(self, folder: Path) -> MemoryStore:  # noqa: ARG002 - it needs none
        return MemoryStore()


class DecliningStore(MemoryStore):
    """Leaves every new task in the queue, as a store may that declines direct starts."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = replace(self.capabilities, supports_direct_start=False)

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        del claim
        return await super().create(creation, quota=quota, now=now)


class TestDecliningStore(DirectStartContract):
    def make_store(self, folder: Path) -> DecliningStore:  # noqa: ARG002 - it needs none
        return DecliningStore()


class DecliningMachine(StoreMachine):
    def make_store(self, folder: Path) -> DecliningStore:  # noqa: ARG002 - likewise
        return DecliningStore()


TestADecliningStoreAgreesWithTheModel = DecliningMachine.TestCase


def test_a_failed_transaction_restores_turns_and_served_turns() -> None:
    documents, clock = IndexedDocuments(publish=lambda _: None), FakeClock()
    harness = StoreHarness(MemoryStore(), clock)
    tasks = [documents.create(harness.creation(), NO_QUOTA, clock.now()) for _ in range(3)]
    before, served = documents.claim_order(), documents.served_turns

    def fail() -> None:
        with documents:
            started = [decide(task, Claim("worker", LEASE), clock.now()) for task in tasks[:2]]
            documents.commit_claims([change for change in started if change is not None])
            documents.create(harness.creation(id=TaskId("new")), NO_QUOTA, clock.now())
            assert documents.served_turns != served
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (documents.claim_order(), documents.served_turns) == (before, served)
    last = documents.create(harness.creation(), NO_QUOTA, clock.now())
    assert documents[last.id].turn == 4


def creates(creation: Creation, documents: Documents, now: datetime) -> object:
    return documents.create(creation, QUOTA, now)


def cancels_one(documents: Documents, now: datetime) -> object:
    first = min(documents.live(), key=lambda task: task.id, default=None)
    change = None if first is None else decide(first, Cancel("alice"), now)
    return None if change is None else documents.commit(change)


def prunes(documents: Documents, now: datetime) -> object:
    prunable = set(documents.prunable_ids(now))
    for task_id in prunable:
        del documents[task_id]
    return prunable


def outcome(documents: Documents, do: Callable[[Documents, datetime], object], now: datetime) -> object:
    """Return the result, or the error message."""
    try:
        if not isinstance(documents, IndexedDocuments):
            return do(documents, now)
        with documents:
            return do(documents, now)
    except RaincheckError as error:
        return f"{type(error).__name__}: {error}"


def then_fails(do: Callable[[Documents, datetime], object], documents: Documents, now: datetime) -> None:
    do(documents, now)
    raise ZeroDivisionError


STEPS = st.tuples(st.sampled_from(["create", "create with a key", "end", "prune"]), st.booleans(), st.integers(0, 2))


@given(st.lists(STEPS, min_size=5, max_size=30))
def test_the_indexes_find_the_same_as_a_full_scan(steps: list[tuple[str, bool, int]]) -> None:
    indexed, clock = IndexedDocuments(publish=lambda _: None), FakeClock()
    harness = StoreHarness(MemoryStore(), clock)
    for operation, is_alices, seconds in steps:
        now = clock.advance(seconds)
        key = "key" if operation == "create with a key" else None
        owner, retention = ALICE if is_alices else BOB, Retention(keep=timedelta(seconds=2))
        creation = harness.creation(owner=owner, idempotency_key=key, request_digest=key, retention=retention)
        do = {"end": cancels_one, "prune": prunes}.get(operation, partial(creates, creation))
        expected = outcome(Documents(indexed), do, now)
        # First in a transaction that fails, which must leave no trace in any index.
        with contextlib.suppress(ZeroDivisionError):
            outcome(indexed, partial(then_fails, do), now)
        assert outcome(indexed, do, now) == expected
