"""What becomes of a task by others than its attempts: answers, signals, the passing of time, its owner, an operator."""

from dataclasses import replace
from datetime import datetime

from raincheck.core import commands as ask
from raincheck.core.change import Change
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.limits import Limits
from raincheck.core.move import move, target
from raincheck.core.payload import check_size
from raincheck.core.process import cancelled_into
from raincheck.core.records import Task
from raincheck.core.text import clip


def due(task: Task, command: ask.Due, now: datetime) -> Change | None:
    target(task, Event.DUE)
    is_due = task.due_at is not None and task.due_at <= now
    return move(task, Event.DUE, now, actor=command.actor) if is_due else None


def signal(task: Task, command: ask.Signal, now: datetime) -> Change:
    counts = {"signals": task.signals + 1, "open_inputs": task.open_inputs}
    return _signalled(task, Event.SIGNAL, now, command.actor, command.note, **counts)


def answer(task: Task, command: ask.Answer, now: datetime, limits: Limits) -> Change | None:
    target(task, Event.ANSWER)
    at = max(now, task.updated_at)
    answered = tuple(
        replace(question, answer=command.answers[question.key], answered_at=at)
        for question in command.inputs
        if question.is_open and question.key in command.answers
    )
    if not answered:
        return None
    for question in answered:
        check_size(question.answer, limits.answer, what=f"the answer to question {question.key!r}")
    note = ", ".join(f"answered {question.key}" for question in answered)
    change = _signalled(
        task,
        Event.ANSWER,
        now,
        command.actor,
        note,
        signals=task.signals + len(answered),
        open_inputs=task.open_inputs - len(answered),
    )
    return replace(change, inputs=answered)


def cancel(task: Task, command: ask.Cancel, now: datetime) -> Change:
    target(task, Event.CANCEL)
    if command.into is not None:
        return cancelled_into(task, command, now)
    message = command.reason or "cancelled"
    return move(task, Event.CANCEL, now, actor=command.actor, note=command.reason, status_message=clip(message))


def pause(task: Task, command: ask.Pause, now: datetime) -> Change | None:
    if task.phase is Phase.PAUSED or task.pausing:
        return None
    pausing = task.phase is Phase.RUNNING
    return move(task, Event.PAUSE, now, actor=command.actor, note=command.reason, pausing=pausing)


def resume(task: Task, command: ask.Resume, now: datetime) -> Change | None:
    if task.phase is Phase.RUNNING and not task.pausing:
        return None
    return move(task, Event.RESUME, now, actor=command.actor, pausing=False, due_at=task.due_at or now)


def _signalled(
    task: Task, event: Event, now: datetime, actor: str, note: str, *, signals: int, open_inputs: int
) -> Change:
    """Something came that the task may wait for: it waits for no moment any more, also not when it is paused."""
    return move(task, event, now, actor=actor, note=note, due_at=None, signals=signals, open_inputs=open_inputs)
