"""A task document: applying changes, refusing stale ones, and views for readers."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.change import create
from raincheck.core.commands import Answer, Cancel, Command, Complete, Interrupt, Note, Pause, Release
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.policies import Retention
from raincheck.core.records import Artifact, Progress, TaskId
from raincheck.core.values import encode
from raincheck.errors import AlreadyRecorded, IdempotencyConflict, StaleChange
from raincheck.stores.documents import TaskDocument
from tests.support.core.tasks import CLAIM, LIMITS, START, artifact, at, change, new, question, step


def _new(**fields: Any) -> TaskDocument:
    return TaskDocument.of(create(new(**fields), START, LIMITS))


def _after(document: TaskDocument, *commands: Command, seconds: float = 0) -> TaskDocument:
    for command in commands:
        document = document.with_change(change(document.task, command, seconds))
    return document


def _running(*commands: Command, **fields: Any) -> TaskDocument:
    return _after(_new(**fields), CLAIM, *commands)


def test_a_new_document_has_the_data_of_its_creation() -> None:
    creation = create(new(caller=encode("alice"), idempotency_key="k", request_digest="d"), START, LIMITS)
    document = TaskDocument.of(creation)
    assert (document.task, document.arguments, document.caller) == (
        creation.task,
        creation.arguments,
        creation.caller,
    )
    assert (document.request_digest, document.history) == ("d", (creation.entry,))
    assert document.journal().caller == encode("alice")
    assert (document.view().outcome, document.view().inputs) == (None, ())


def test_a_change_is_applied_completely() -> None:
    note = Note(1, Progress(1), "crunching", (step(),), (question(),), (artifact(),), encode({"page": 1}))
    document = _running(note)
    journal = document.journal()
    assert (journal.steps, journal.inputs, journal.variables) == ((step(),), (question(),), encode({"page": 1}))
    assert (journal.artifacts, document.artifacts) == (("draft",), (artifact(),))
    assert journal.task == document.task
    assert [entry.event for entry in document.history] == [Event.CREATE, Event.CLAIM, Event.NOTE]


def test_a_change_without_an_entry_does_not_change_the_history() -> None:
    before = _running()
    document = _after(before, Note(1, Progress(1)))
    assert document.history == before.history
    assert document.task.progress == Progress(1)


def test_data_that_a_change_does_not_contain_is_unchanged() -> None:
    note = Note(1, None, None, (step(),), (question(),), (artifact(),), encode({"page": 1}))
    document = _running(note, Note(1, Progress(2)))
    assert (document.steps, document.inputs, document.artifacts) == ((step(),), (question(),), (artifact(),))
    assert document.variables == encode({"page": 1})
    assert _after(document, Note(1, variables=encode({}))).variables == encode({})


def test_steps_and_questions_are_in_recording_order_and_artifacts_by_name() -> None:
    document = _running(
        Note(1, steps=(step("b"),), input_requests=(question("b"),), artifacts=(artifact("b"),)),
        Note(1, steps=(step("a"), step("b", 1)), input_requests=(question("a"),), artifacts=(artifact("a"),)),
    )
    journal = document.journal()
    assert [(one.name, one.occurrence) for one in journal.steps] == [("b", 0), ("a", 0), ("b", 1)]
    assert [one.key for one in journal.inputs] == ["b", "a"]
    assert journal.artifacts == ("a", "b")


def test_an_artifact_of_the_same_name_replaces_the_earlier_one() -> None:
    second = Artifact("draft", encode("better"), at(5))
    document = _running(Note(1, artifacts=(artifact(),)), Note(1, artifacts=(second, artifact("other"))))
    assert document.artifacts == (second, artifact("other"))


def test_an_answered_question_replaces_the_open_one() -> None:
    document = _running(Note(1, input_requests=(question("a"), question("b"), question("c"))))
    answered = _after(document, Answer(document.inputs, {"b": encode("yes")}, "alice"), seconds=5)
    assert [(one.key, one.answer) for one in answered.inputs] == [("a", None), ("b", encode("yes")), ("c", None)]
    assert [one.key for one in answered.view().inputs] == ["a", "c"]
    assert len(answered.journal().inputs) == 3


def test_a_poll_shows_the_outcome_and_no_questions_after_the_end() -> None:
    ended = _running(Note(1, input_requests=(question(),)), Complete(1, encode("report")))
    assert (ended.view().outcome, ended.view().inputs) == (encode("report"), ())
    assert ended.view().task.phase is Phase.COMPLETED
    assert ended.journal().inputs == (question(),)


def test_a_change_that_was_decided_on_an_older_task_is_stale() -> None:
    document = _running()
    late = change(document.task, Complete(1, encode("report")))
    newer = _after(document, Cancel("alice"))
    with pytest.raises(StaleChange) as stale:
        newer.with_change(late)
    assert stale.value.task_id == "task-1"
    with pytest.raises(StaleChange):
        document.with_change(change(newer.task.evolve(phase=Phase.QUEUED), Cancel("bob")))


def test_an_interrupt_of_a_lease_that_was_extended_is_stale() -> None:
    document = _running()
    interrupt = change(document.task, Interrupt(), 30)
    extended = document.with_extended_lease(1, at(60))
    assert extended is not None
    with pytest.raises(StaleChange):
        extended.with_change(interrupt)
    assert document.with_change(interrupt).task.phase is Phase.QUEUED
    without = replace(document, task=document.task.evolve(attempt=None))
    with pytest.raises(StaleChange):
        without.with_change(interrupt)


def test_a_change_does_not_overwrite_a_lease_that_was_extended_meanwhile() -> None:
    document = _running()
    note = change(document.task, Note(1, Progress(1)))
    extended = document.with_extended_lease(1, at(60))
    assert extended is not None
    changed = extended.with_change(note)
    assert changed.task.attempt is not None
    assert (changed.task.attempt.lease.expires_at, changed.task.progress) == (at(60), Progress(1))
    released = extended.with_change(change(document.task, Release(1)))
    assert released.task.attempt is None


def test_a_change_does_not_restore_a_key_that_was_released_meanwhile() -> None:
    before = _running(idempotency_key="key", request_digest="digest")
    for command in (Note(1, status_message="working"), Release(1), Complete(1, encode("done"))):
        decided = change(before.task, command)
        assert decided.after.idempotency_key == "key"
        after = before.without_key().with_change(decided)
        assert after.task == decided.after.evolve(idempotency_key=None)
        assert after.request_digest is None
        assert before.with_change(decided).task == decided.after


def test_extending_changes_the_lease_and_nothing_else() -> None:
    document = _running()
    extended = document.with_extended_lease(1, at(60))
    assert extended is not None
    assert extended.task.attempt is not None
    assert (extended.task.attempt.lease.holder, extended.task.attempt.lease.expires_at) == ("worker-1", at(60))
    assert replace(extended, task=extended.task.evolve(attempt=document.task.attempt)) == document


def test_a_stale_attempt_extends_no_lease() -> None:
    assert _new().with_extended_lease(0, at(60)) is None
    for fence in (0, 2):
        assert _running().with_extended_lease(fence, at(60)) is None
    assert _running(Complete(1, encode(1))).with_extended_lease(1, at(60)) is None


def test_a_step_that_is_recorded_already_is_refused() -> None:
    document = _running(Note(1, steps=(step("load", 1),)))
    with pytest.raises(AlreadyRecorded) as twice:
        _after(document, Note(1, steps=(step("save"), step("load", 1))))
    assert twice.value.what == "step 'load' (1)"
    assert len(_after(document, Note(1, steps=(step("load", 0), step("load", 2)))).steps) == 3


def test_a_questions_key_is_used_once_in_a_tasks_life() -> None:
    document = _running(Note(1, input_requests=(question("a"),)))
    answered = _after(document, Answer(document.inputs, {"a": encode("yes")}, "alice"))
    for one in (document, answered):
        with pytest.raises(AlreadyRecorded) as twice:
            _after(one, Note(1, input_requests=(question("b"), question("a"))))
        assert twice.value.what == "question 'a'"


def test_a_document_is_never_mutated() -> None:
    document = _running()
    before = replace(document)
    _after(document, Note(1, steps=(step(),)), Pause("operator"))
    document.with_extended_lease(1, at(60))
    assert document == before


def test_a_document_is_visible_only_in_scope_and_until_it_expires() -> None:
    document = _running(Cancel("alice"), retention=Retention(keep=timedelta(seconds=60)))
    mine = Scope.for_owner("reports", document.task.owner)
    assert [document.is_visible(mine, at(seconds)) for seconds in (59, 60)] == [True, False]
    assert [document.is_visible(Scope.everything(), at(seconds)) for seconds in (59, 60)] == [True, False]
    assert not document.is_visible(Scope.for_owner("reports", Owner.local()), at(0))
    assert not document.is_visible(Scope.for_namespace("builds"), at(0))


def test_the_same_request_under_the_same_key_is_the_same_task() -> None:
    asked: dict[str, Any] = {"idempotency_key": "key", "request_digest": "digest"}
    document = _running(Cancel("alice"), retention=Retention(keep=timedelta(seconds=60)), **asked)
    again = create(new(id=TaskId("task-2"), **asked), START, LIMITS)
    assert document.matches_request(again, at(59))
    assert not document.matches_request(again, at(60))


def test_another_request_under_the_same_key_is_a_conflict_until_the_key_is_free() -> None:
    key: dict[str, Any] = {"idempotency_key": "key"}
    document = _running(
        Cancel("alice"), retention=Retention(keep=timedelta(seconds=60)), request_digest="digest", **key
    )
    other = create(new(id=TaskId("task-2"), request_digest="other", **key), START, LIMITS)
    with pytest.raises(IdempotencyConflict) as conflict:
        document.matches_request(other, at(59))
    assert (conflict.value.task_id, conflict.value.key) == ("task-1", "key")
    assert not document.matches_request(other, at(60))


def test_a_turn_is_stored_with_the_document_and_not_in_the_task() -> None:
    document = _new().with_turn(7)
    assert document.turn == 7
    assert (document.task, document.journal()) == (_new().task, _new().journal())
    assert _after(document, Pause("operator")).turn == 7
