"""Exhaustive: every command, on a task in every phase, does exactly what the lifecycle table allows."""

import copy
from dataclasses import dataclass, fields, replace
from typing import TypeGuard, get_args

import pytest

from raincheck.core.commands import (
    Answer,
    AttemptCommand,
    Cancel,
    Command,
    Complete,
    Due,
    Expire,
    Fail,
    Interrupt,
    Note,
    Park,
    Pause,
    Release,
    Resume,
    Signal,
    TakeTransition,
    Yield,
)
from raincheck.core.decide import decide
from raincheck.core.lifecycle import TERMINAL_PHASES, TRANSITIONS, Event, Phase
from raincheck.core.records import InstanceState, Task
from raincheck.core.values import encode
from raincheck.errors import IllegalTransition, LeaseLost
from tests.support.core.tasks import CLAIM, ERROR, SITUATIONS, after, at, question, step

LATE = 2_000
"""Seconds after which every lease, wait and deadline of a test has passed."""


@dataclass(frozen=True)
class Case:
    """A command, its event, and its event while the task is pausing (None: the same)."""

    command: Command
    event: Event
    when_pausing: Event | None = None


HERE = InstanceState("draft", at(0))
LEAVE = TakeTransition("submit", "draft", 0, "review", "alice")

CASES = {
    "claim": Case(CLAIM, Event.CLAIM),
    "note": Case(Note(1, steps=(step(),)), Event.NOTE),
    "park": Case(Park(1, seen_signals=0, until=at(20)), Event.PARK, Event.YIELD),
    "park without having seen everything": Case(Park(1, seen_signals=1), Event.RELEASE, Event.YIELD),
    "release": Case(Release(1), Event.RELEASE, Event.YIELD),
    "yield": Case(Yield(1), Event.YIELD),
    "complete": Case(Complete(1, encode("report")), Event.COMPLETE),
    "fail, and try again": Case(Fail(1, ERROR, "broke"), Event.RETRY, Event.YIELD),
    "fail for good": Case(Fail(1, ERROR, "broke", retryable=False), Event.FAIL),
    "interrupt": Case(Interrupt(), Event.INTERRUPT, Event.YIELD),
    "expire": Case(Expire(), Event.EXPIRE),
    "due": Case(Due(), Event.DUE),
    "signal": Case(Signal("worker-2", "child ended"), Event.SIGNAL),
    "answer": Case(Answer((question(),), {"publish?": encode("yes")}, "alice"), Event.ANSWER),
    "transition": Case(LEAVE, Event.TRANSITION),
    "cancel": Case(Cancel("alice"), Event.CANCEL),
    "cancel into a state of the workflow": Case(Cancel("alice", into=LEAVE), Event.CANCEL),
    "pause": Case(Pause("operator"), Event.PAUSE),
    "resume": Case(Resume("operator"), Event.RESUME),
}

NOTHING_TO_DO = {
    ("running", "yield"),
    ("running", "resume"),
    ("running, to be paused", "pause"),
    ("parked for an answer", "due"),
    ("paused", "pause"),
    ("paused, never started", "pause"),
}
"""Where `decide` returns None without an error: the requested state is reached already, or it is not time yet."""

_ENDED = {"attempt", "pausing", "due_at", "open_inputs", "finished_at", "expires_at", "status_message"}

MAY_TOUCH: dict[Event, set[str]] = {
    Event.CREATE: set(),
    Event.CLAIM: {"attempt_number", "attempt"},
    Event.NOTE: {"progress", "status_message", "open_inputs", "failures"},
    Event.ANSWER: {"signals", "open_inputs", "due_at"},
    Event.SIGNAL: {"signals", "due_at"},
    Event.TRANSITION: {"signals", "due_at", "state", "status_message", "failures"},
    Event.DUE: {"due_at"},
    Event.PARK: {"attempt", "due_at"},
    Event.RELEASE: {"attempt"},
    Event.RETRY: {"attempt", "due_at", "failures"},
    Event.INTERRUPT: {"attempt", "failures"},
    Event.PAUSE: {"pausing"},
    Event.YIELD: {"attempt", "pausing", "due_at", "failures"},
    Event.RESUME: {"pausing", "due_at"},
    Event.COMPLETE: _ENDED | {"is_error"},
    Event.FAIL: _ENDED | {"failures"},
    Event.CANCEL: _ENDED | {"state"},
    Event.EXPIRE: _ENDED,
}
"""The fields of a record that an event may change besides `phase`, `updated_at`, `version` and `entries`."""


def _is_from_attempt(command: Command) -> TypeGuard[AttemptCommand]:
    return isinstance(command, get_args(AttemptCommand))


EVERY_PAIR = [
    pytest.param(situation, name, id=f"{name} when {situation}") for situation in SITUATIONS for name in CASES
]


def test_every_command_and_every_event_is_covered() -> None:
    assert {type(case.command) for case in CASES.values()} == set(get_args(Command))
    assert {case.event for case in CASES.values()} == set(Event) - {Event.CREATE}
    assert set(MAY_TOUCH) == set(Event)


@pytest.mark.parametrize(("situation", "name"), EVERY_PAIR)
def test_a_command_does_what_the_lifecycle_table_allows(situation: str, name: str) -> None:
    task, case = SITUATIONS[situation].evolve(state=HERE), CASES[name]
    event = (case.when_pausing if task.pausing else None) or case.event
    target = TRANSITIONS[task.phase].get(event)
    if (situation, name) in NOTHING_TO_DO:
        assert decide(task, case.command, at(LATE)) is None
    elif _is_from_attempt(case.command) and task.phase is not Phase.RUNNING:
        # Whatever the table allows for the event: the attempt learns that it no longer holds the task.
        with pytest.raises(LeaseLost) as lost:
            decide(task, case.command, at(LATE))
        assert (lost.value.task_id, lost.value.attempt) == (task.id, 1)
    elif target is None:
        with pytest.raises(IllegalTransition) as illegal:
            decide(task, case.command, at(LATE))
        assert (illegal.value.task_id, illegal.value.phase, illegal.value.event) == (task.id, task.phase, event)
    else:
        change = decide(task, case.command, at(LATE))
        assert change is not None
        assert change.before is task
        assert change.after.phase is target
        assert change.entry is not None
        assert (change.entry.event, change.entry.before, change.entry.after) == (event, task.phase, target)


@pytest.mark.parametrize(("situation", "name"), EVERY_PAIR)
def test_a_command_changes_only_the_fields_of_its_event(situation: str, name: str) -> None:
    task, case = SITUATIONS[situation].evolve(state=HERE), CASES[name]
    untouched = copy.deepcopy(task)
    try:
        change = decide(task, case.command, at(LATE))
    except (IllegalTransition, LeaseLost):
        change = None
    assert task == untouched
    if change is None:
        return
    assert change.entry is not None
    touched = {field.name for field in fields(Task) if getattr(change.after, field.name) != getattr(task, field.name)}
    assert touched <= MAY_TOUCH[change.entry.event] | {"phase", "updated_at", "version", "entries"}
    assert (change.after.version, change.after.entries) == (task.version + 1, task.entries + 1)
    assert change.after.updated_at == at(LATE)


@pytest.mark.parametrize("fence", [-1, 0, 1, 3], ids="fence {}".format)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if _is_from_attempt(case.command)])
def test_an_attempt_is_refused_unless_its_fence_is_the_latest(name: str, fence: int) -> None:
    command = CASES[name].command
    assert _is_from_attempt(command)
    second = after(SITUATIONS["running"], Release(1), CLAIM)
    with pytest.raises(LeaseLost) as lost:
        decide(second, replace(command, fence=fence), at(LATE))
    assert lost.value.attempt == fence
    assert decide(second, replace(command, fence=2), at(LATE)) is not None or name == "yield"


@pytest.mark.parametrize("phase", sorted(TERMINAL_PHASES))
def test_no_command_leads_out_of_a_terminal_phase(phase: Phase) -> None:
    for case in CASES.values():
        with pytest.raises((IllegalTransition, LeaseLost)):
            decide(SITUATIONS[phase], case.command, at(LATE))
