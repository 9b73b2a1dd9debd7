"""Reports of a running attempt: what they may contain, what is recorded, and what is refused."""

from dataclasses import replace
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from raincheck.core.change import create
from raincheck.core.commands import Due, Fail, Note, Release
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Owner
from raincheck.core.policies import Limits
from raincheck.core.records import Artifact, InputKind, InputRequest, Progress, Step, Task, TaskId
from raincheck.core.values import MESSAGE_LIMIT, NAME_LIMIT, Payload, encode
from raincheck.errors import AlreadyRecorded, InvalidValue, TooLarge
from tests.support.core.tasks import CLAIM, START, after, artifact, asking, at, change, new, question, running, step


def _progress(task: Task) -> tuple[float, float | None] | None:
    return None if task.progress is None else (task.progress.done, task.progress.total)


def test_progress_is_stored_without_a_history_entry() -> None:
    noted = change(running(), Note(1, Progress(1, 3)), 5)
    assert _progress(noted.after) == (1, 3)
    assert (noted.after.updated_at, noted.after.phase) == (at(5), Phase.RUNNING)
    assert noted.after.version == noted.before.version + 1
    assert (noted.entry, noted.after.entries) == (None, noted.before.entries)


def test_progress_never_goes_backwards() -> None:
    task = after(running(), Note(1, Progress(5, 10)))
    assert decide(task, Note(1, Progress(4, 10)), at(5)) is None
    assert _progress(after(task, Note(1, Progress(5, 20)))) == (5, 20)
    assert _progress(after(task, Note(1, Progress(6, 10)))) == (6, 10)


def test_a_later_attempt_that_starts_over_shows_the_progress_of_the_earlier_one() -> None:
    task = after(running(), Note(1, Progress(5, 10)), Release(1), CLAIM)
    assert decide(task, Note(2, Progress(0, 10)), at(5)) is None
    assert _progress(after(task, Note(2, Progress(1, 12)))) == (5, 12)


def test_a_note_without_progress_leaves_it_as_it_was() -> None:
    task = after(running(), Note(1, Progress(5, 10)), Note(1, status_message="crunching"))
    assert _progress(task) == (5, 10)


@pytest.mark.parametrize("value", [nan, inf, -inf, -1, -0.5])
def test_progress_that_is_not_a_number_is_refused(value: float) -> None:
    with pytest.raises(InvalidValue, match="progress done must be a finite number of at least 0"):
        Progress(value)
    with pytest.raises(InvalidValue, match="progress total must be a finite number of at least 0"):
        Progress(1, value)


def test_progress_beyond_what_a_float_holds_is_refused_like_any_other() -> None:
    with pytest.raises(InvalidValue):
        Progress(10**400)


def test_progress_may_be_nothing_at_all() -> None:
    assert _progress(after(running(), Note(1, Progress(0, 0)))) == (0, 0)


NOTHING_NEW = [
    Note(1),
    Note(1, Progress(5, 10)),
    Note(1, Progress(2, 10)),
    Note(1, status_message="crunching"),
    Note(1, Progress(5, 10), "crunching"),
]


@pytest.mark.parametrize("note", NOTHING_NEW, ids=str)
def test_a_note_without_anything_new_changes_nothing(note: Note) -> None:
    task = after(running(), Note(1, Progress(5, 10), "crunching"))
    assert decide(task, note, at(5)) is None


def test_a_status_message_is_stored_and_recorded_in_the_history() -> None:
    noted = change(running(), Note(1, Progress(1), "crunching"))
    assert noted.after.status_message == "crunching"
    assert noted.entry is not None
    assert (noted.entry.event, noted.entry.note, noted.entry.actor) == (Event.NOTE, "crunching", "worker-1")


def test_a_status_message_is_shortened_and_repaired_rather_than_refused() -> None:
    message = after(running(), Note(1, status_message="\0\ud800" + "x" * 10_000)).status_message
    assert message is not None
    assert len(message.encode().decode()) <= MESSAGE_LIMIT
    assert "\0" not in message


def test_a_repeated_long_status_message_changes_nothing() -> None:
    note = Note(1, status_message="x" * 10_000)
    assert decide(after(running(), note), note, at(5)) is None


def test_variables_are_stored_without_a_history_entry() -> None:
    task = after(running(), Note(1, Progress(5, 10), "crunching"))
    noted = change(task, Note(1, variables=encode({"page": 3})))
    assert (noted.variables, noted.entry) == (encode({"page": 3}), None)
    assert (noted.after.progress, noted.after.status_message) == (task.progress, "crunching")


def test_everything_in_a_note_goes_into_one_change() -> None:
    child = create(new(id=TaskId("task-2"), parent_id=TaskId("task-1")), START, Limits())
    note = Note(1, Progress(1), "crunching", (step(),), (question(),), (artifact(),), encode({}), (child,))
    noted = change(running(), note)
    assert (noted.steps, noted.inputs, noted.artifacts) == ((step(),), (question(),), (artifact(),))
    assert (noted.variables, noted.spawned) == (encode({}), (child,))
    assert noted.after.open_inputs == 1
    assert noted.entry is not None
    assert noted.entry.note == "step load, asked publish?, stored draft, spawned task-2"


def test_open_questions_add_up() -> None:
    task = asking("a", "b")
    assert task.open_inputs == 2
    assert after(task, Note(1, input_requests=(question("c"),))).open_inputs == 3


def test_beyond_the_limit_of_entries_notes_are_stored_but_not_recorded_in_the_history() -> None:
    limits = Limits(notes=4)
    task = running()
    for number in range(3, 5):
        noted = change(task, Note(1, steps=(step("load", number),)), limits=limits)
        assert noted.entry is not None
        task = noted.after
    assert task.entries == 4
    silent = change(task, Note(1, status_message="more", steps=(step("load", 5),)), limits=limits)
    assert (silent.entry, silent.after.entries) == (None, 4)
    assert (silent.steps, silent.after.status_message) == ((step("load", 5),), "more")
    assert silent.after.version == task.version + 1
    released = change(silent.after, Release(1), limits=limits)
    assert released.entry is not None
    assert released.entry.seq == 5


BIG = Payload(b"1" * 11)
SMALL = Limits(step=10, question=10, artifact=10, variables=10)
TOO_LARGE = [
    (Note(1, steps=(Step("load", 0, "", BIG, 1, START),)), "the result of step 'load'"),
    (Note(1, input_requests=(InputRequest("name?", InputKind.SAMPLING, BIG, START, 1),)), "question 'name?'"),
    (Note(1, artifacts=(Artifact("draft", BIG, START),)), "artifact 'draft'"),
    (Note(1, variables=BIG), "variables"),
]


@pytest.mark.parametrize(("note", "what"), TOO_LARGE, ids=[what for _, what in TOO_LARGE])
def test_a_value_over_its_limit_is_refused_by_name(note: Note, what: str) -> None:
    with pytest.raises(TooLarge) as too_large:
        decide(running(), note, at(5), SMALL)
    assert (too_large.value.what, too_large.value.size, too_large.value.limit) == (what, 11, 10)
    assert what in str(too_large.value)
    exactly = Limits(step=11, question=11, artifact=11, variables=11)
    assert decide(running(), note, at(5), exactly) is not None


def test_each_kind_of_payload_has_its_own_limit() -> None:
    for (note, _), name in zip(TOO_LARGE, ("step", "question", "artifact", "variables"), strict=True):
        bound: dict[str, Any] = {name: 10}
        with pytest.raises(TooLarge):
            decide(running(), note, at(5), Limits(**bound))


def test_the_number_of_open_questions_is_limited() -> None:
    limits = Limits(open_inputs=3)
    task = asking("a", "b")
    assert decide(task, Note(1, input_requests=(question("c"),)), at(5), limits) is not None
    with pytest.raises(TooLarge, match="task 'task-1' has 4 open questions, and 3 are allowed") as too_large:
        decide(task, Note(1, input_requests=(question("c"), question("d"))), at(5), limits)
    assert (too_large.value.size, too_large.value.limit) == (4, 3)


def test_a_step_twice_in_one_note_is_refused() -> None:
    with pytest.raises(AlreadyRecorded) as twice:
        decide(running(), Note(1, steps=(step("load", 1), step("load", 1))), at(5))
    assert (twice.value.task_id, twice.value.what) == ("task-1", "step 'load' (1)")
    assert decide(running(), Note(1, steps=(step("load", 0), step("load", 1), step("save"))), at(5)) is not None


def test_a_question_twice_in_one_note_is_refused() -> None:
    with pytest.raises(AlreadyRecorded) as twice:
        decide(running(), Note(1, input_requests=(question("a"), question("b"), question("a"))), at(5))
    assert twice.value.what == "question 'a'"


@pytest.mark.parametrize("occurrence", [-1, 1 << 31, 10**30])
def test_an_occurrence_out_of_range_is_refused(occurrence: int) -> None:
    with pytest.raises(InvalidValue, match=f"step 'load' can't have the occurrence {occurrence}"):
        decide(running(), Note(1, steps=(step("load", occurrence),)), at(5))
    assert decide(running(), Note(1, steps=(step("load", (1 << 31) - 1),)), at(5)) is not None


def test_a_new_question_must_be_unanswered() -> None:
    answered = replace(question("a"), answer=encode("yes"), answered_at=START)
    with pytest.raises(InvalidValue, match="question 'a' already has an answer"):
        decide(running(), Note(1, input_requests=(answered,)), at(5))


STRANGE_CHILDREN: dict[str, dict[str, Any]] = {
    "another owner's": {"owner": Owner.local()},
    "another server's": {"namespace": "builds"},
    "another task's": {"parent_id": TaskId("task-9")},
    "asked for with a key": {"idempotency_key": "key", "request_digest": "digest"},
}


@pytest.mark.parametrize("name", STRANGE_CHILDREN)
def test_a_task_spawns_only_children_of_its_own(name: str) -> None:
    child = create(new(id=TaskId("task-2"), **STRANGE_CHILDREN[name]), START, Limits())
    with pytest.raises(InvalidValue, match="'task-2'"):
        decide(running(), Note(1, spawned=(child,)), at(5))


def test_finishing_a_step_resets_the_failures() -> None:
    failed = after(running(), Fail(1, encode("broke"), "broke", chance=1.0))
    again = after(failed, Due(), CLAIM, seconds=60)
    assert again.failures == 1
    assert after(again, Note(2, Progress(1), "crunching"), seconds=60).failures == 1
    assert after(again, Note(2, steps=(step(),)), seconds=60).failures == 0


BAD_NAMES = ["", "\0", "\ud800", "x" * (NAME_LIMIT + 1)]


@pytest.mark.parametrize("name", BAD_NAMES, ids=["empty", "NUL", "lone surrogate", "too long"])
def test_names_that_can_not_be_stored_are_refused(name: str) -> None:
    for note, what in (
        (Note(1, steps=(step(name),)), "a step's name"),
        (Note(1, input_requests=(question(name),)), "a question's key"),
        (Note(1, artifacts=(artifact(name),)), "an artifact's name"),
    ):
        with pytest.raises(InvalidValue, match=what):
            decide(running(), note, at(5))


@pytest.mark.parametrize("fingerprint", BAD_NAMES[1:], ids=["NUL", "lone surrogate", "too long"])
def test_a_fingerprint_that_can_not_be_stored_is_refused(fingerprint: str) -> None:
    with pytest.raises(InvalidValue, match="fingerprint"):
        decide(running(), Note(1, steps=(replace(step(), fingerprint=fingerprint),)), at(5))


def test_after_the_clock_was_set_back_a_note_does_not_set_back_the_tasks_time() -> None:
    task = after(running(), Note(1, Progress(1)), seconds=100)
    assert after(task, Note(1, Progress(2)), seconds=40).updated_at == at(100)


def test_a_note_does_not_end_or_extend_the_lease() -> None:
    task = running()
    assert after(task, Note(1, Progress(1)), seconds=20).attempt == task.attempt


def test_a_task_that_waited_for_long_can_still_report() -> None:
    # The lease has expired, but the task was not swept: the attempt still holds it.
    assert after(running(), Note(1, Progress(1)), seconds=timedelta(days=30).total_seconds()).attempt_number == 1
