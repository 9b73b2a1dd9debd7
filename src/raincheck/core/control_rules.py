"""Rules for everything other than attempts: answers, signals, the passing of time, the owner, an operator.

They include the state transitions of instances. A transition is one change, with its history entry. The workflow's
definition decides which transitions are allowed; here is their effect on the record: a transition is valid only if the
instance is still in the state that it was decided in, and it wakes a waiting task.
"""

from dataclasses import replace
from datetime import datetime

from raincheck.core import commands
from raincheck.core.change import Change, apply_event, next_phase, require_attempt
from raincheck.core.commands import Cancel, TakeTransition
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.limits import Limits
from raincheck.core.payload import Payload, check_size, encode
from raincheck.core.records import InstanceState, Task
from raincheck.core.validation import check_name, clip
from raincheck.errors import WrongState


def transition(task: Task, command: TakeTransition, now: datetime, limits: Limits) -> Change:
    next_phase(task, Event.TRANSITION)
    state = next_state(task, command, now)
    check_size(command.variables, limits.variables, what="the data of the instance")
    is_from_outside = command.fence is None
    change = apply_event(
        task,
        Event.TRANSITION,
        now,
        actor=command.actor,
        note=describe_transition(command),
        detail=encode_transition(task, command),
        # An attempt or a parked task that waits in the old state has to check again.
        signals=task.signals + 1 if is_from_outside else task.signals,
        due_at=None,
        state=state,
        status_message=clip(command.to_state if command.reason is None else f"{command.to_state}: {command.reason}"),
        # Progress in the old state does not apply to the new one.
        progress=None,
        # The task makes progress: only repeated failure at the same place counts.
        failures=0,
    )
    return replace(change, variables=command.variables)


def cancel_into_state(task: Task, command: Cancel, now: datetime) -> Change:
    """Return the change that cancels an instance whose definition has a state for that."""
    assert command.into is not None  # noqa: S101 - checked by the caller
    state = next_state(task, command.into, now)
    change = apply_event(
        task,
        Event.CANCEL,
        now,
        actor=command.actor,
        note=describe_transition(command.into),
        detail=encode_transition(task, command.into),
        state=state,
        status_message=clip(command.reason or command.into.to_state),
    )
    return replace(change, variables=command.into.variables)


def next_state(task: Task, command: TakeTransition, now: datetime) -> InstanceState:
    """Return the state that a transition leads to.

    Raises:
        LeaseLost: it comes from an attempt that no longer holds the task.
        WrongState: the instance is not in the state that the transition starts from.
    """
    if command.fence is not None:
        require_attempt(task, command.fence)
    current = task.state
    if current is None or (current.name, current.number) != (command.from_state, command.state_number):
        raise WrongState(task.id, command.action, command.from_state, None if current is None else current.name)
    check_name(command.to_state, what="a state's name")
    check_name(command.action, what="a transition's name")
    return InstanceState(command.to_state, max(now, task.updated_at), current.number + 1)


def describe_transition(command: TakeTransition) -> str:
    """Describe the transition for people."""
    text = f"{command.action}: {command.from_state} -> {command.to_state}"
    return text if command.reason is None else f"{text} ({command.reason})"


def encode_transition(task: Task, command: TakeTransition) -> Payload:
    """Encode the transition for programs."""
    return encode(
        {"action": command.action, "from": command.from_state, "to": command.to_state, "reason": command.reason},
        what=f"a transition of task {task.id!r}",
    )


def due(task: Task, command: commands.Due, now: datetime) -> Change | None:
    next_phase(task, Event.DUE)
    is_due = task.due_at is not None and task.due_at <= now
    return apply_event(task, Event.DUE, now, actor=command.actor) if is_due else None


def signal(task: Task, command: commands.Signal, now: datetime) -> Change:
    counts = {"signals": task.signals + 1, "open_inputs": task.open_inputs}
    return _apply_signal(task, Event.SIGNAL, now, command.actor, command.note, **counts)


def answer(task: Task, command: commands.Answer, now: datetime, limits: Limits) -> Change | None:
    next_phase(task, Event.ANSWER)
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
    change = _apply_signal(
        task,
        Event.ANSWER,
        now,
        command.actor,
        note,
        signals=task.signals + len(answered),
        open_inputs=task.open_inputs - len(answered),
    )
    return replace(change, inputs=answered)


def cancel(task: Task, command: commands.Cancel, now: datetime) -> Change:
    next_phase(task, Event.CANCEL)
    if command.into is not None:
        return cancel_into_state(task, command, now)
    message = command.reason or "cancelled"
    return apply_event(task, Event.CANCEL, now, actor=command.actor, note=command.reason, status_message=clip(message))


def pause(task: Task, command: commands.Pause, now: datetime) -> Change | None:
    if task.phase is Phase.PAUSED or task.pausing:
        return None
    pausing = task.phase is Phase.RUNNING
    return apply_event(task, Event.PAUSE, now, actor=command.actor, note=command.reason, pausing=pausing)


def resume(task: Task, command: commands.Resume, now: datetime) -> Change | None:
    if task.phase is Phase.RUNNING and not task.pausing:
        return None
    return apply_event(task, Event.RESUME, now, actor=command.actor, pausing=False, due_at=task.due_at or now)


def _apply_signal(
    task: Task, event: Event, now: datetime, actor: str, note: str, *, signals: int, open_inputs: int
) -> Change:
    """Apply an event that the task may wait for: any time it waits for is cleared, also while it is paused."""
    return apply_event(task, event, now, actor=actor, note=note, due_at=None, signals=signals, open_inputs=open_inputs)
