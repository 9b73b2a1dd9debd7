"""What an attempt may bring into the world, and what it may not."""

from dataclasses import replace
from typing import Any

import pytest

from raincheck.core.commands import Claim, Complete, Interrupt, Note
from raincheck.core.create import create
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner, OwnerKind
from raincheck.core.payload import encode
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import Task
from raincheck.errors import InvalidValue
from raincheck.stores.base import Store
from raincheck.stores.memory import MemoryStore
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import BOB, LEASE

STORE: Store = MemoryStore()


@pytest.fixture
def scene() -> StoreHarness:
    return StoreHarness(STORE, FakeClock())


def running(scene: StoreHarness, **fields: Any) -> Task:
    change = decide(scene.creation(**fields).task, Claim("worker-1", LEASE), scene.clock.now())
    assert change is not None
    return change.after


@pytest.mark.parametrize(
    "fields",
    [
        {"owner": BOB},
        {"namespace": "elsewhere"},
        {"parent_id": "somebody else"},
        {"idempotency_key": "key", "request_digest": "digest"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_task_spawns_only_what_is_its_owners_and_its_own(scene: StoreHarness, fields: dict[str, Any]) -> None:
    parent = running(scene)
    with pytest.raises(InvalidValue, match="spawned"):
        decide(parent, Note(1, spawned=(scene.creation(**fields),)), scene.clock.now())


def test_a_task_spawns_children_and_successors(scene: StoreHarness) -> None:
    parent = running(scene)
    for parent_id in (parent.id, None):
        change = decide(parent, Note(1, spawned=(scene.creation(parent_id=parent_id),)), scene.clock.now())
        assert change is not None
        assert len(change.spawned) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"owner": BOB},
        {"namespace": "elsewhere"},
        {"parent_id": "somebody else"},
        {"parent_id": "task-0001"},
        {"idempotency_key": "key", "request_digest": "digest"},
    ],
    ids=lambda fields: next(iter(fields.values())),
)
def test_a_task_ends_with_successors_that_are_its_owners_and_nobodys_children(
    scene: StoreHarness, fields: dict[str, Any]
) -> None:
    task = running(scene)
    assert task.id == "task-0001"
    with pytest.raises(InvalidValue, match="spawned"):
        decide(task, Complete(1, encode(1), spawned=(scene.creation(**fields),)), scene.clock.now())


def test_successors_come_with_the_completion_and_the_history_names_them(scene: StoreHarness) -> None:
    task, quota = running(scene), Quota(live=3)
    spawned = (scene.creation(), scene.creation())
    change = decide(task, Complete(1, encode(1), spawned=spawned, quota=quota), scene.clock.now())
    assert change is not None
    assert change.entry is not None
    assert (change.spawned, change.quota, change.after.phase) == (spawned, quota, Phase.COMPLETED)
    assert change.entry.note == "spawned task-0002, spawned task-0003"
    alone = decide(task, Complete(1, encode(1)), scene.clock.now())
    assert alone is not None
    assert alone.entry is not None
    assert (alone.spawned, alone.entry.note) == ((), None)


def test_a_note_carries_the_quota_of_what_it_spawns(scene: StoreHarness) -> None:
    note = Note(1, spawned=(scene.creation(),), quota=Quota(live=3))
    change = decide(running(scene), note, scene.clock.now())
    assert change is not None
    assert change.quota == Quota(live=3)


def test_a_question_is_asked_open(scene: StoreHarness) -> None:
    answered = replace(scene.input_request("publish"), answer=encode("yes"), answered_at=scene.clock.now())
    with pytest.raises(InvalidValue, match="ask it open"):
        decide(running(scene), Note(1, input_requests=(answered,)), scene.clock.now())


@pytest.mark.parametrize("occurrence", [-1, 1 << 31, 1 << 70])
def test_a_step_has_a_number_that_can_be_kept(scene: StoreHarness, occurrence: int) -> None:
    with pytest.raises(InvalidValue, match="can't be number"):
        decide(running(scene), Note(1, steps=(scene.step("load", occurrence),)), scene.clock.now())


def test_a_task_that_finishes_a_step_each_time_may_be_cut_off_as_often_as_it_likes(scene: StoreHarness) -> None:
    task = running(scene, retry=RetryPolicy(attempts=2))
    for number in range(10):
        now = scene.clock.advance(LEASE.total_seconds())
        noted = decide(task, Note(task.attempt_number, steps=(scene.step("page", number),)), now)
        assert noted is not None
        cut_off = decide(noted.after, Interrupt(), now)
        assert cut_off is not None
        assert (cut_off.after.phase, cut_off.after.failures) == (Phase.QUEUED, 1)
        again = decide(cut_off.after, Claim("worker-2", LEASE), now)
        assert again is not None
        task = again.after


def test_a_task_that_is_cut_off_at_the_same_place_each_time_fails(scene: StoreHarness) -> None:
    task = running(scene, retry=RetryPolicy(attempts=2))
    for phase in (Phase.QUEUED, Phase.FAILED):
        now = scene.clock.advance(LEASE.total_seconds())
        noted = decide(task, Note(task.attempt_number, status_message=f"trying at {now}"), now)
        assert noted is not None
        cut_off = decide(noted.after, Interrupt(), now)
        assert cut_off is not None
        assert cut_off.after.phase is phase
        if phase is Phase.QUEUED:
            again = decide(cut_off.after, Claim("worker-2", LEASE), now)
            assert again is not None
            task = again.after


def test_an_anonymous_caller_gets_no_task_by_a_key_that_others_may_guess(scene: StoreHarness) -> None:
    new = scene.new_task(owner=Owner.anonymous(), idempotency_key="key", request_digest="digest")
    with pytest.raises(InvalidValue, match="anonymous caller can't use an idempotency key"):
        create(new, scene.clock.now(), Limits())
    told_apart = replace(new, owner=Owner(OwnerKind.SESSION, ("one",)))
    assert create(told_apart, scene.clock.now(), Limits()).task.idempotency_key == "key"
