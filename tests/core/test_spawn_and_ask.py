"""Tasks, questions and steps that an attempt may create, and those that are refused."""

from dataclasses import replace
from typing import Any

import pytest

from raincheck.core.change import create
from raincheck.core.commands import Claim, Complete, Interrupt, Note
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, OwnerKind
from raincheck.core.policies import Limits, Quota, RetryPolicy
from raincheck.core.records import Task
from raincheck.core.values import encode
from raincheck.errors import InvalidValue
from raincheck.stores.base import Store
from raincheck.stores.memory import MemoryStore
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import BOB, LEASE

STORE: Store = MemoryStore()


@pytest.fixture
def harness() -> StoreHarness:
    return StoreHarness(STORE, FakeClock())


def running(harness: StoreHarness, **fields: Any) -> Task:
    change = decide(harness.creation(**fields).task, Claim("worker-1", LEASE), harness.clock.now())
    assert change is not None
    return change.after


@pytest.mark.parametrize(
    "fields",
    [
        {"owner": BOB},
        {"namespace": "elsewhere"},
        {"parent_id": "another task"},
        {"idempotency_key": "key", "request_digest": "digest"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_task_spawns_only_tasks_of_its_own_namespace_and_owner(harness: StoreHarness, fields: dict[str, Any]) -> None:
    parent = running(harness)
    with pytest.raises(InvalidValue, match="spawned"):
        decide(parent, Note(1, spawned=(harness.creation(**fields),)), harness.clock.now())


def test_a_task_spawns_children_and_successors(harness: StoreHarness) -> None:
    parent = running(harness)
    for parent_id in (parent.id, None):
        change = decide(parent, Note(1, spawned=(harness.creation(parent_id=parent_id),)), harness.clock.now())
        assert change is not None
        assert len(change.spawned) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"owner": BOB},
        {"namespace": "elsewhere"},
        {"parent_id": "another task"},
        {"parent_id": "task-0001"},
        {"idempotency_key": "key", "request_digest": "digest"},
    ],
    ids=lambda fields: next(iter(fields.values())),
)
def test_successors_have_the_same_owner_and_no_parent(harness: StoreHarness, fields: dict[str, Any]) -> None:
    task = running(harness)
    assert task.id == "task-0001"
    with pytest.raises(InvalidValue, match="spawned"):
        decide(task, Complete(1, encode(1), spawned=(harness.creation(**fields),)), harness.clock.now())


def test_successors_are_part_of_the_completion_and_named_in_the_history(harness: StoreHarness) -> None:
    task, quota = running(harness), Quota(live=3)
    spawned = (harness.creation(), harness.creation())
    change = decide(task, Complete(1, encode(1), spawned=spawned, quota=quota), harness.clock.now())
    assert change is not None
    assert change.entry is not None
    assert (change.spawned, change.quota, change.after.phase) == (spawned, quota, Phase.COMPLETED)
    assert change.entry.note == "spawned task-0002, spawned task-0003"
    alone = decide(task, Complete(1, encode(1)), harness.clock.now())
    assert alone is not None
    assert alone.entry is not None
    assert (alone.spawned, alone.entry.note) == ((), None)


def test_a_note_carries_the_quota_for_its_spawned_tasks(harness: StoreHarness) -> None:
    note = Note(1, spawned=(harness.creation(),), quota=Quota(live=3))
    change = decide(running(harness), note, harness.clock.now())
    assert change is not None
    assert change.quota == Quota(live=3)


def test_a_new_question_must_be_unanswered(harness: StoreHarness) -> None:
    answered = replace(harness.input_request("publish"), answer=encode("yes"), answered_at=harness.clock.now())
    with pytest.raises(InvalidValue, match="ask it without one"):
        decide(running(harness), Note(1, input_requests=(answered,)), harness.clock.now())


@pytest.mark.parametrize("occurrence", [-1, 1 << 31, 1 << 70])
def test_the_occurrence_of_a_step_is_limited(harness: StoreHarness, occurrence: int) -> None:
    with pytest.raises(InvalidValue, match="can't have the occurrence"):
        decide(running(harness), Note(1, steps=(harness.step("load", occurrence),)), harness.clock.now())


def test_a_task_that_finishes_a_step_in_each_attempt_may_be_interrupted_any_number_of_times(
    harness: StoreHarness,
) -> None:
    task = running(harness, retry=RetryPolicy(attempts=2))
    for number in range(10):
        now = harness.clock.advance(LEASE.total_seconds())
        noted = decide(task, Note(task.attempt_number, steps=(harness.step("page", number),)), now)
        assert noted is not None
        cut_off = decide(noted.after, Interrupt(), now)
        assert cut_off is not None
        assert (cut_off.after.phase, cut_off.after.failures) == (Phase.QUEUED, 1)
        again = decide(cut_off.after, Claim("worker-2", LEASE), now)
        assert again is not None
        task = again.after


def test_a_task_that_is_interrupted_at_the_same_step_each_time_fails(harness: StoreHarness) -> None:
    task = running(harness, retry=RetryPolicy(attempts=2))
    for phase in (Phase.QUEUED, Phase.FAILED):
        now = harness.clock.advance(LEASE.total_seconds())
        noted = decide(task, Note(task.attempt_number, status_message=f"trying at {now}"), now)
        assert noted is not None
        cut_off = decide(noted.after, Interrupt(), now)
        assert cut_off is not None
        assert cut_off.after.phase is phase
        if phase is Phase.QUEUED:
            again = decide(cut_off.after, Claim("worker-2", LEASE), now)
            assert again is not None
            task = again.after


def test_an_anonymous_caller_can_not_use_an_idempotency_key(harness: StoreHarness) -> None:
    new = harness.new_task(owner=Owner.anonymous(), idempotency_key="key", request_digest="digest")
    with pytest.raises(InvalidValue, match="anonymous caller can't use an idempotency key"):
        create(new, harness.clock.now(), Limits())
    told_apart = replace(new, owner=Owner(OwnerKind.SESSION, ("one",)))
    assert create(told_apart, harness.clock.now(), Limits()).task.idempotency_key == "key"
