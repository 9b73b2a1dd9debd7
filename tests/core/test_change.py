"""Applying one event: cleared fields, counters, and a task time that never runs backwards."""

import pytest

from raincheck.core.change import apply_event, next_phase
from raincheck.core.commands import Cancel, Complete, Due, Note, Park, Pause, Resume, Signal
from raincheck.core.lifecycle import LIVE_PHASES, TERMINAL_PHASES, TRANSITIONS, Event, Phase
from raincheck.core.policies import Retention
from raincheck.core.records import Progress
from raincheck.core.values import encode
from raincheck.errors import IllegalTransition
from tests.support.core.tasks import CLAIM, SITUATIONS, after, at, change, created, running

WAITING = (Phase.PARKED, Phase.PAUSED)
EVERY_MOVE = [
    pytest.param(situation, event, id=f"{event} when {situation}")
    for situation, task in SITUATIONS.items()
    for event in TRANSITIONS[task.phase]
]


@pytest.mark.parametrize(("situation", "event"), EVERY_MOVE)
def test_fields_that_belong_to_a_phase_are_cleared_when_it_ends(situation: str, event: Event) -> None:
    task = SITUATIONS[situation]
    moved = apply_event(task, event, at(5), actor="alice").after
    stays_running = moved.phase is Phase.RUNNING
    assert moved.attempt == (task.attempt if stays_running else None)
    assert moved.pausing == (task.pausing if stays_running else False)
    if event not in (Event.ANSWER, Event.SIGNAL):
        assert moved.due_at == (task.due_at if moved.phase in WAITING else None)
    assert moved.attempt_number == task.attempt_number
    if moved.phase in TERMINAL_PHASES:
        assert (moved.finished_at, moved.open_inputs) == (at(5), 0)
        assert moved.expires_at == task.retention.expires_at(task.created_at, at(5))
    else:
        assert (moved.finished_at, moved.expires_at, moved.open_inputs) == (None, None, task.open_inputs)


@pytest.mark.parametrize(("situation", "event"), EVERY_MOVE)
def test_an_event_can_not_set_fields_that_its_new_phase_does_not_have(situation: str, event: Event) -> None:
    task = SITUATIONS[situation]
    attempt = SITUATIONS["running"].attempt
    moved = apply_event(
        task, event, at(5), actor="alice", attempt=attempt, pausing=True, due_at=at(9), open_inputs=7
    ).after
    assert (moved.attempt is not None) == moved.pausing == (moved.phase is Phase.RUNNING)
    assert moved.due_at is None or moved.phase in WAITING
    assert moved.open_inputs == (0 if moved.phase in TERMINAL_PHASES else 7)


@pytest.mark.parametrize(("situation", "event"), EVERY_MOVE)
def test_time_never_runs_backwards_even_if_the_clock_does(situation: str, event: Event) -> None:
    task = SITUATIONS[situation].evolve(updated_at=at(100))
    made = apply_event(task, event, at(40), actor="alice")
    assert made.after.updated_at == at(100)
    assert made.entry is not None
    assert made.entry.at == at(100)
    assert made.after.finished_at in (None, at(100))


def test_after_the_clock_was_set_back_an_attempt_starts_at_the_tasks_last_change() -> None:
    queued = after(created(), Pause("operator"), Resume("operator"), Due(), seconds=100)
    claimed = change(queued, CLAIM, 40)
    assert claimed.after.attempt is not None
    assert claimed.after.attempt.started_at == at(100)
    # A lease trusts the clock that is read when it is checked.
    assert claimed.after.attempt.lease.expires_at == at(40 + 30)


def test_after_the_clock_was_set_back_an_ended_task_is_retained_for_the_full_time() -> None:
    task = after(running(), Note(1, Progress(1)), seconds=100)
    ended = change(task, Complete(1, encode("report")), 40).after
    assert ended.expires_at == at(100) + ended.retention.keep


def test_every_change_increments_the_version_and_every_recorded_one_the_entries() -> None:
    task = running()
    recorded = apply_event(task, Event.NOTE, at(1), actor="worker-1")
    silent = apply_event(task, Event.NOTE, at(1), actor="worker-1", recorded=False)
    assert (recorded.after.version, recorded.after.entries) == (task.version + 1, task.entries + 1)
    assert recorded.entry is not None
    assert recorded.entry.seq == task.entries + 1
    assert (silent.after.version, silent.after.entries, silent.entry) == (task.version + 1, task.entries, None)


def test_a_history_entry_has_the_event_its_time_its_actor_and_its_attempt() -> None:
    detail = encode({"message": "broke"})
    entry = apply_event(running(), Event.PARK, at(7), actor="worker-1", note="waits", detail=detail).entry
    assert entry is not None
    assert (entry.seq, entry.at, entry.event) == (3, at(7), Event.PARK)
    assert (entry.before, entry.after, entry.attempt) == (Phase.RUNNING, Phase.PARKED, 1)
    assert (entry.actor, entry.note, entry.detail) == ("worker-1", "waits", detail)


def test_the_history_entry_of_a_claim_has_the_number_of_the_new_attempt() -> None:
    claimed = change(created(), CLAIM)
    assert claimed.entry is not None
    assert (claimed.before.attempt_number, claimed.entry.attempt, claimed.after.attempt_number) == (0, 1, 1)


def test_texts_in_a_history_entry_are_repaired_for_any_store() -> None:
    entry = apply_event(running(), Event.PARK, at(7), actor="worker\0" * 2_000, note="\ud800" * 3_000).entry
    assert entry is not None
    assert entry.note is not None
    for words in (entry.actor, entry.note):
        assert len(words.encode().decode()) <= 2_000
        assert "\0" not in words


@pytest.mark.parametrize("phase", sorted(Phase))
def test_an_event_that_the_table_does_not_have_is_refused(phase: Phase) -> None:
    task = next(task for task in SITUATIONS.values() if task.phase is phase)
    for event in set(Event) - set(TRANSITIONS[phase]):
        with pytest.raises(IllegalTransition) as illegal:
            next_phase(task, event)
        assert (illegal.value.phase, illegal.value.event) == (phase, event)
        with pytest.raises(IllegalTransition):
            apply_event(task, event, at(5), actor="alice")
    for event, expected in TRANSITIONS[phase].items():
        assert next_phase(task, event) is expected


@pytest.mark.parametrize("phase", sorted(LIVE_PHASES))
def test_the_working_status_message_does_not_survive_the_end(phase: Phase) -> None:
    task = next(task for task in SITUATIONS.values() if task.phase is phase).evolve(status_message="crunching")
    assert apply_event(task, Event.CANCEL, at(5), actor="alice").after.status_message is None
    assert apply_event(task, Event.CANCEL, at(5), actor="alice", status_message="done").after.status_message == "done"
    assert apply_event(task, Event.SIGNAL, at(5), actor="alice").after.status_message == "crunching"


def test_a_task_that_ends_early_is_retained_for_its_promised_ttl() -> None:
    promised = running(retention=Retention(keep=at(10) - at(0), ttl=at(500) - at(0)))
    assert change(promised, Cancel("alice"), 3).after.expires_at == at(500)
    assert change(promised, Cancel("alice"), 600).after.expires_at == at(610)


def test_an_outcome_is_part_of_the_change_and_not_of_the_record() -> None:
    made = change(running(), Complete(1, encode("report")))
    assert made.outcome == encode("report")
    assert change(running(), Cancel("alice")).outcome is None
    assert change(running(), Signal("worker-2", "child ended")).outcome is None
    assert change(running(), Park(1, seen_signals=0)).outcome is None
