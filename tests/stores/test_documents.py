"""Queries over all documents, and changes of them."""

from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.change import Creation, create
from raincheck.core.commands import Cancel, Command, Complete, Note, Release, Signal
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.policies import NO_QUOTA, Quota, Retention
from raincheck.core.records import Task, TaskId
from raincheck.core.values import encode
from raincheck.errors import AlreadyRecorded, QuotaExceeded, StaleChange, TaskNotFound
from raincheck.stores.documents import Documents, TaskDocument
from raincheck.stores.requests import ClaimRequest
from tests.support.core.tasks import CLAIM, LIMITS, START, at, change, new

BRIEF = Retention(keep=timedelta(seconds=60))


def _creation(number: int = 1, **fields: Any) -> Creation:
    return create(new(id=TaskId(f"task-{number}"), **fields), START, LIMITS)


def _add(documents: Documents, number: int = 1, **fields: Any) -> Task:
    return documents.create(_creation(number, **fields), NO_QUOTA, START)


def _do(documents: Documents, task: Task, *commands: Command, seconds: float = 0) -> Task:
    for command in commands:
        stored = documents.find(task.id)
        assert stored is not None
        task = documents.commit(change(stored, command, seconds))
    return task


def test_unknown_foreign_and_expired_tasks_give_the_same_error() -> None:
    empty, expired, fresh = Documents(), Documents(), Documents()
    _do(expired, _add(expired, retention=Retention(keep=timedelta(0))), Cancel("alice"))
    _add(fresh)
    cases = [
        (empty, Scope.everything()),
        (expired, Scope.everything()),
        (fresh, Scope.for_owner("reports", Owner.local())),
        (fresh, Scope.for_namespace("builds")),
    ]
    messages: set[str] = set()
    for documents, scope in cases:
        with pytest.raises(TaskNotFound) as missing:
            documents.get_visible(TaskId("task-1"), scope, START)
        messages.add(str(missing.value))
    assert len(messages) == 1
    assert fresh.get_visible(TaskId("task-1"), Scope.for_namespace("reports"), START) is fresh[TaskId("task-1")]


def test_an_id_can_be_used_only_once() -> None:
    documents = Documents()
    assert _add(documents) == _creation().task
    assert documents == {TaskId("task-1"): TaskDocument.of(_creation()).with_turn(1)}
    with pytest.raises(AlreadyRecorded, match="task 'task-1' already has been created"):
        _add(documents)


def test_a_task_found_by_its_key_is_not_counted_and_an_expired_task_frees_its_key() -> None:
    documents, key = Documents(), {"idempotency_key": "key", "request_digest": "digest"}
    first = _add(documents, 1, retention=BRIEF, **key)
    again = _creation(2, **key)
    assert documents.create(again, Quota(live=1), START) == first
    ended = _do(documents, first, Cancel("alice"))
    assert documents.create(again, Quota(created=1), at(59)) == ended
    assert documents.create(again, Quota(created=1), at(60)) == again.task
    assert list(documents) == [again.task.id]


def test_another_owners_key_and_tasks_do_not_count() -> None:
    documents, key = Documents(), {"idempotency_key": "key", "request_digest": "digest"}
    for number, fields in enumerate([{"owner": Owner.local()}, {"namespace": "builds"}, {}], 1):
        created = documents.create(_creation(number, **key, **fields), Quota(live=1), START)
        assert created.id == f"task-{number}"
    with pytest.raises(QuotaExceeded):
        documents.create(_creation(4), Quota(live=1), START)


def test_a_change_is_stored_with_its_spawned_tasks() -> None:
    documents = Documents()
    parent = _do(documents, _add(documents), CLAIM)
    child = _creation(2, parent_id=parent.id)
    spawned = change(parent, Note(1, spawned=(child,)))
    assert documents.commit(spawned) == spawned.after
    assert documents.find(child.task.id) == child.task
    with pytest.raises(AlreadyRecorded) as twice:
        documents.commit(change(spawned.after, Note(1, spawned=(_creation(2),))))
    assert twice.value.task_id == "task-2"


def test_each_spawned_task_is_counted() -> None:
    spawned = tuple(_creation(number) for number in (2, 3))
    for live, created, fits in ((3, 3, True), (2, 3, False), (3, 2, False)):
        documents = Documents()
        parent = _do(documents, _add(documents), CLAIM)
        note = change(parent, Note(1, spawned=spawned, quota=Quota(live=live, created=created)))
        if fits:
            documents.commit(note)
        else:
            with pytest.raises(QuotaExceeded):
                documents.commit(note)


def test_a_change_of_a_deleted_task_is_stale() -> None:
    documents = Documents()
    task = _add(documents)
    del documents[task.id]
    with pytest.raises(StaleChange):
        documents.commit(change(task, Cancel("alice")))


def test_the_claim_order_is_the_order_of_queue_positions() -> None:
    documents = Documents()
    first, second = _add(documents, 1), _add(documents, 2)
    running = _do(documents, _add(documents, 3), CLAIM)
    _add(documents, 4, due_at=at(1))
    other = _add(documents, 5, owner=Owner.local())
    urgent = _add(documents, 6, priority=1)
    assert [task.id for task in documents.claim_order()] == [urgent.id, first.id, other.id, second.id]
    assert {task.id for task in documents.live()} == {f"task-{number}" for number in range(1, 7)}
    released = _do(documents, running, Release(1))
    assert documents.claim_order()[-3:] == [released, other, second]


def test_a_task_that_returns_to_the_queue_gets_a_new_turn_and_one_that_stays_keeps_its_turn() -> None:
    documents = Documents()
    tasks = [_add(documents, number) for number in range(1, 4)]
    assert [documents[task.id].turn for task in tasks] == [1, 2, 3]
    documents.commit_claims([change(task, CLAIM) for task in tasks[:2]])
    _do(documents, tasks[0], Release(1))
    assert [documents[task.id].turn for task in tasks] == [3, 2, 3]
    _do(documents, tasks[2], Signal("child", "a child ended"))
    assert documents[tasks[2].id].turn == 3


def test_only_a_claim_advances_the_served_turns() -> None:
    documents = Documents()
    tasks = [_add(documents, number, priority=number // 3) for number in range(1, 5)]
    _do(documents, tasks[1], CLAIM, Complete(1, encode("done")))
    assert documents.served_turns == {}
    assert documents.commit_claims([change(tasks[number], CLAIM) for number in (3, 0)]) == tuple(
        change(tasks[number], CLAIM).after for number in (3, 0)
    )
    assert documents.served_turns == {("reports", 0): 1, ("reports", 1): 2}
    documents.commit_claims([change(tasks[2], CLAIM)])
    assert documents.served_turns == {("reports", 0): 1, ("reports", 1): 2}
    documents.clear()
    assert documents[_add(documents, 5, priority=1).id].turn == 3


def test_a_copy_has_the_served_turns_and_changes_them_independently() -> None:
    documents = Documents()
    tasks = [_add(documents, number) for number in (1, 2)]
    documents.commit_claims([change(tasks[0], CLAIM)])
    copied = Documents(documents)
    copied.commit_claims([change(tasks[1], CLAIM)])
    assert (documents.served_turns, copied.served_turns) == ({("reports", 0): 1}, {("reports", 0): 2})
    assert documents.find(tasks[1].id) == tasks[1]


def test_an_expired_task_is_prunable_unless_its_parent_is_live() -> None:
    documents = Documents()
    parent = _do(documents, _add(documents, 1, retention=BRIEF), CLAIM)
    child = _add(documents, 2, retention=BRIEF, parent_id=parent.id)
    orphan = _add(documents, 3, retention=BRIEF, parent_id=TaskId("unknown"))
    for task in (child, orphan):
        _do(documents, task, Cancel("alice"))
    assert documents.prunable_ids(at(59)) == []
    assert documents.prunable_ids(at(60)) == [orphan.id]
    _do(documents, parent, Complete(1, encode("done")), seconds=10)
    assert set(documents.prunable_ids(at(60))) == {child.id, orphan.id}
    assert set(documents.prunable_ids(at(70))) == {parent.id, child.id, orphan.id}


def test_only_live_children_are_found() -> None:
    documents = Documents()
    parent = _add(documents)
    children = [_add(documents, number, parent_id=parent.id) for number in (2, 3)]
    _add(documents, 4, parent_id=children[0].id)
    _do(documents, children[0], Cancel("alice"))
    assert [task.id for task in documents.live_children(parent.id)] == [children[1].id]
    found = documents.find(TaskId("task-4"))
    assert found is not None
    assert found.phase is Phase.CANCELLED


def test_a_direct_start_is_decided_for_new_tasks_only_and_serves_their_queue() -> None:
    documents, key = Documents(), {"idempotency_key": "key", "request_digest": "digest"}
    request = ClaimRequest("reports", frozenset({_creation().task.tool}), "worker", timedelta(seconds=30), 1)
    first = documents.create(_creation(1, **key), NO_QUOTA, START, request)
    assert (first.phase, documents.find(first.id), documents.served_turns) == (
        Phase.RUNNING,
        first,
        {("reports", 0): 1},
    )
    assert len(documents[first.id].history) == 2
    assert documents.create(_creation(1, **key), NO_QUOTA, START, request) == first
    _add(documents, 3)
    second = documents.create(_creation(2), NO_QUOTA, START, request)
    assert (second.phase, documents.find(second.id)) == (Phase.QUEUED, second)
    waiting = Documents()
    queued = _add(waiting, 1, **key)
    assert waiting.create(_creation(1, **key), NO_QUOTA, START, request) == queued
    assert waiting.served_turns == {}


def test_only_the_current_attempt_extends_its_lease() -> None:
    documents = Documents()
    task = _do(documents, _add(documents), CLAIM)
    assert documents.extend_lease(task.id, 1, at(99))
    extended = documents.find(task.id)
    assert extended is not None
    assert extended.attempt is not None
    assert extended.attempt.lease.expires_at == at(99)
    assert not documents.extend_lease(task.id, 2, at(100))
    assert not documents.extend_lease(TaskId("unknown"), 1, at(100))
    assert documents.find(task.id) == extended


def test_pruning_respects_its_limit() -> None:
    documents = Documents()
    tasks = [_do(documents, _add(documents, number, retention=BRIEF), Cancel("alice")) for number in (1, 2, 3)]
    _add(documents, 4)
    assert documents.prune(at(59), 10) == ()
    assert len(documents.prune(at(60), 2)) == 2
    assert len(documents.prune(at(60), 2)) == 1
    assert {task.id for task in tasks}.isdisjoint(documents)
    assert list(documents) == ["task-4"]


def test_a_key_is_released_only_by_its_task_and_value() -> None:
    documents = Documents()
    task = _add(documents, idempotency_key="key", request_digest="digest")
    for task_id, key in ((task.id, "other"), (TaskId("unknown"), "key")):
        documents.release_key(task_id, key)
    assert documents.find(task.id) == task
    documents.release_key(task.id, "key")
    assert documents[task.id].request_digest is None
    assert documents.find(task.id) == task.evolve(idempotency_key=None)
    again = _creation(2, idempotency_key="key", request_digest="another")
    assert documents.create(again, NO_QUOTA, START) == again.task


def test_a_copy_has_the_durations_and_changes_them_independently() -> None:
    documents = Documents()
    assert documents.merge_durations("reports", {}) == {}
    known = documents.merge_durations("reports", {"build": DurationHistogram({4: 1})})
    copied = Documents(documents)
    assert copied.merge_durations(
        "reports", {"build": DurationHistogram({4: 1}), "test": DurationHistogram({5: 1})}
    ) == {
        "build": DurationHistogram({4: 2}),
        "test": DurationHistogram({5: 1}),
    }
    known.clear()
    assert documents.merge_durations("reports", {}) == {"build": DurationHistogram({4: 1})}
    assert documents.merge_durations("elsewhere", {}) == {}
