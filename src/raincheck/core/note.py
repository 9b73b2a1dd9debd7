"""What a running attempt may report, and what of it is worth an entry in the history."""

from collections import Counter
from dataclasses import replace
from datetime import datetime

from raincheck.core.change import Change
from raincheck.core.commands import Note
from raincheck.core.lifecycle import Event
from raincheck.core.limits import Limits
from raincheck.core.move import move
from raincheck.core.payload import check_size
from raincheck.core.records import Progress, Task
from raincheck.core.spawning import check_children, spawning_words
from raincheck.core.text import check_name, clip
from raincheck.errors import AlreadyRecorded, InvalidValue, TooLarge

OCCURRENCES = 1 << 31


def decide_note(task: Task, note: Note, now: datetime, *, actor: str, limits: Limits) -> Change | None:
    """The change that the report makes; None if it says nothing new."""
    _check(task, note, limits)
    progress = forward(task.progress, note.progress)
    message = task.status_message if note.status_message is None else clip(note.status_message)
    words = _words(note)
    says_more = message != task.status_message
    if not words and not says_more and progress == task.progress and note.variables is None:
        return None
    change = move(
        task,
        Event.NOTE,
        now,
        actor=actor,
        note=", ".join(words) or message,
        recorded=(bool(words) or says_more) and task.entries < limits.notes,
        progress=progress,
        status_message=message,
        open_inputs=task.open_inputs + len(note.asked),
        # A task that gets on may be cut off as often as it likes; what counts is going wrong at the same place.
        failures=0 if note.steps else task.failures,
    )
    return replace(
        change,
        steps=note.steps,
        inputs=note.asked,
        artifacts=note.artifacts,
        variables=note.variables,
        spawned=note.spawned,
        quota=note.quota,
    )


def forward(old: Progress | None, new: Progress | None) -> Progress | None:
    """Progress never goes backwards: a later attempt that starts over shows where the earlier one was."""
    if old is None or new is None:
        return new or old
    return new if new.done >= old.done else Progress(old.done, new.total)


def _words(note: Note) -> list[str]:
    return [
        *(f"step {step.name}" for step in note.steps),
        *(f"asked {question.key}" for question in note.asked),
        *(f"kept {artifact.name}" for artifact in note.artifacts),
        *spawning_words(note.spawned),
    ]


def _check(task: Task, note: Note, limits: Limits) -> None:
    steps = Counter((step.name, step.occurrence) for step in note.steps)
    keys = Counter(question.key for question in note.asked)
    for step in note.steps:
        if steps[step.name, step.occurrence] > 1:
            raise AlreadyRecorded.step(task.id, step.name, step.occurrence)
        check_name(step.name, what="a step's name")
        if not 0 <= step.occurrence < OCCURRENCES:
            raise InvalidValue(f"step {step.name!r} can't be number {step.occurrence}")
        if step.fingerprint:
            check_name(step.fingerprint, what=f"the fingerprint of step {step.name!r}")
        check_size(step.result, limits.step, what=f"the result of step {step.name!r}")
    check_children(task, note.spawned)
    for question in note.asked:
        if not question.is_open:
            raise InvalidValue(f"question {question.key!r} is asked with its answer: ask it open")
        if keys[question.key] > 1:
            raise AlreadyRecorded.question(task.id, question.key)
        check_name(question.key, what="a question's key")
        check_size(question.request, limits.question, what=f"question {question.key!r}")
    for artifact in note.artifacts:
        check_name(artifact.name, what="an artifact's name")
        check_size(artifact.content, limits.artifact, what=f"artifact {artifact.name!r}")
    check_size(note.variables, limits.variables, what="variables")
    asked = task.open_inputs + len(note.asked)
    if asked > limits.open_inputs:
        raise TooLarge(f"task {task.id!r}", asked, limits.open_inputs, "open questions")
