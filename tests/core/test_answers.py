"""Answers to open questions: partial, repeated, unknown, too large."""

from dataclasses import replace

import pytest

from raincheck.core.commands import Answer
from raincheck.core.decide import decide
from raincheck.core.lifecycle import LIVE_PHASES, Phase, Status
from raincheck.core.policies import Limits
from raincheck.core.records import InputRequest
from raincheck.core.values import Payload, encode
from raincheck.errors import IllegalTransition, TooLarge
from tests.support.core.tasks import SITUATIONS, after, asking, at, change, question

YES, NO = encode("yes"), encode("no")


def _answer(inputs: tuple[InputRequest, ...], **answers: Payload) -> Answer:
    return Answer(inputs, answers, "alice")


def test_an_answer_is_stored_with_its_question_and_its_time() -> None:
    answered = change(asking("a"), _answer((question("a"),), a=YES), 5)
    (stored,) = answered.inputs
    assert (stored.key, stored.answer, stored.answered_at, stored.is_open) == ("a", YES, at(5), False)
    assert replace(stored, answer=None, answered_at=None) == question("a")
    assert (answered.after.open_inputs, answered.after.signals) == (0, 1)
    assert answered.entry is not None
    assert (answered.entry.actor, answered.entry.note) == ("alice", "answered a")


def test_a_partial_answer_leaves_the_other_questions_open() -> None:
    inputs = (question("a"), question("b"), question("c"))
    task = asking("a", "b", "c")
    partial = change(task, _answer(inputs, a=YES, c=NO))
    assert [stored.key for stored in partial.inputs] == ["a", "c"]
    assert (partial.after.open_inputs, partial.after.signals) == (1, 2)
    assert partial.after.status is Status.INPUT_REQUIRED
    assert partial.entry is not None
    assert partial.entry.note == "answered a, answered c"
    rest = change(partial.after, _answer((question("b"),), b=NO))
    assert (rest.after.open_inputs, rest.after.signals, rest.after.status) == (0, 3, Status.WORKING)


def test_a_question_that_was_answered_is_not_answered_again() -> None:
    answered = change(asking("a", "b"), _answer((question("a"), question("b")), a=YES))
    inputs = (answered.inputs[0], question("b"))
    assert decide(answered.after, _answer(inputs, a=NO), at(5)) is None
    again = change(answered.after, _answer(inputs, a=NO, b=NO))
    assert [(stored.key, stored.answer) for stored in again.inputs] == [("b", NO)]
    assert again.after.open_inputs == 0


def test_an_answer_to_an_unknown_question_is_ignored() -> None:
    task = asking("a")
    assert decide(task, _answer((question("a"),), b=YES), at(5)) is None
    assert decide(task, _answer((question("a"),)), at(5)) is None
    assert decide(task, _answer((), a=YES), at(5)) is None
    mixed = change(task, _answer((question("a"),), a=YES, b=YES))
    assert [stored.key for stored in mixed.inputs] == ["a"]


def test_an_answer_over_its_limit_is_refused_with_the_questions_key() -> None:
    task, limits = asking("a"), Limits(answer=10)
    with pytest.raises(TooLarge) as too_large:
        decide(task, _answer((question("a"),), a=Payload(b"1" * 11)), at(5), limits)
    assert (too_large.value.what, too_large.value.size) == ("the answer to question 'a'", 11)
    assert decide(task, _answer((question("a"),), a=Payload(b"1" * 10)), at(5), limits) is not None


def test_one_answer_over_its_limit_refuses_all_answers() -> None:
    inputs = (question("a"), question("b"))
    with pytest.raises(TooLarge):
        decide(asking("a", "b"), _answer(inputs, a=YES, b=Payload(b"1" * 99)), at(5), Limits(answer=10))


def test_after_the_clock_was_set_back_an_answer_is_not_dated_before_its_question() -> None:
    task = after(asking("a", "b"), _answer((question("a"), question("b")), a=YES), seconds=100)
    late = change(task, _answer((question("b"),), b=YES), 40)
    assert late.inputs[0].answered_at == late.after.updated_at == at(100)


@pytest.mark.parametrize("phase", sorted(LIVE_PHASES))
def test_a_question_may_be_answered_in_every_live_phase(phase: Phase) -> None:
    task = next(task for task in SITUATIONS.values() if task.phase is phase and task.open_inputs)
    answered = change(task, _answer((question(),), **{"publish?": YES}))
    assert (answered.after.open_inputs, answered.after.attempt) == (0, task.attempt)


@pytest.mark.parametrize("phase", ["completed", "failed", "cancelled"])
def test_an_ended_task_accepts_no_answer_not_even_to_an_unknown_question(phase: str) -> None:
    for inputs in ((question(),), ()):
        with pytest.raises(IllegalTransition):
            decide(SITUATIONS[phase], _answer(inputs, **{"publish?": YES}), at(5))
