"""Processes: tasks of workflows that have states of their own. A transition is one change, with its history entry.

What a workflow allows is for its definition to say. Here is what a transition does to the record: it holds only if the
process is still in the state that it was decided in, and whoever waits is woken.

What becomes of a task by others than its attempts: answers, signals, the passing of time, its owner, an operator.
"""

from dataclasses import replace
from datetime import datetime

from raincheck.core import commands as ask
from raincheck.core.change import Change, attempt_of, move, target
from raincheck.core.commands import Cancel, Transition
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.limits import Limits
from raincheck.core.payload import Payload, check_size, encode
from raincheck.core.records import State, Task
from raincheck.core.validation import check_name, clip
from raincheck.errors import WrongState


def transition(task: Task, command: Transition, now: datetime, limits: Limits) -> Change:
    target(task, Event.TRANSITION)
    state = enter(task, command, now)
    check_size(command.variables, limits.variables, what="the data of the process")
    is_from_outside = command.fence is None
    change = move(
        task,
        Event.TRANSITION,
        now,
        actor=command.actor,
        note=words(command),
        detail=detail(task, command),
        # Whoever waits in the old state, by its attempt or parked, has to look again.
        signals=task.signals + 1 if is_from_outside else task.signals,
        due_at=None,
        state=state,
        status_message=clip(command.to if command.reason is None else f"{command.to}: {command.reason}"),
        # How far it was in the old state says nothing of the new one.
        progress=None,
        # It gets on: what counts is going wrong at the same place.
        failures=0,
    )
    return replace(change, variables=command.variables)


def cancelled_into(task: Task, command: Cancel, now: datetime) -> Change:
    """The end of a process whose definition has a state for that."""
    assert command.into is not None  # noqa: S101 - whoever asks has seen it
    state = enter(task, command.into, now)
    change = move(
        task,
        Event.CANCEL,
        now,
        actor=command.actor,
        note=words(command.into),
        detail=detail(task, command.into),
        state=state,
        status_message=clip(command.reason or command.into.to),
    )
    return replace(change, variables=command.into.variables)


def enter(task: Task, command: Transition, now: datetime) -> State:
    """The state that a transition leads to.

    Raises:
        LeaseLost: it is an attempt's that does not hold the task any more.
        WrongState: the process is not where the transition begins.
    """
    if command.fence is not None:
        attempt_of(task, command.fence)
    here = task.state
    if here is None or (here.name, here.number) != (command.before, command.number):
        raise WrongState(task.id, command.action, command.before, None if here is None else here.name)
    check_name(command.to, what="a state's name")
    check_name(command.action, what="a transition's name")
    return State(command.to, max(now, task.updated_at), here.number + 1)


def words(command: Transition) -> str:
    """What happened, for people."""
    told = f"{command.action}: {command.before} -> {command.to}"
    return told if command.reason is None else f"{told} ({command.reason})"


def detail(task: Task, command: Transition) -> Payload:
    """What happened, for programs."""
    return encode(
        {"action": command.action, "from": command.before, "to": command.to, "reason": command.reason},
        what=f"a transition of task {task.id!r}",
    )


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
