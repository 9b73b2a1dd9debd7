"""The single decision function: (task, command, now) → change.

`decide` takes a task as it was read and returns the change that a command would make. It modifies nothing: a store
commits the change, and only if the task is still the one that was read. So a rule is written once, is pure, and holds
for every store.

The rules for attempts come first: how they start, report, stop, end, fail, or are interrupted. The others follow:
answers, signals, the passing of time, the owner, an operator, and the state transitions of instances. A transition is
one change, with its history entry. The workflow's definition decides which transitions are allowed; here is their
effect on the record: a transition is valid only if the instance is still in the state that it was decided in, and it
wakes a waiting task.
"""

from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any, assert_never

from raincheck.core import commands
from raincheck.core.change import (
    Change,
    apply_event,
    check_spawned,
    describe_spawned,
    next_phase,
    require_attempt,
)
from raincheck.core.commands import Note, TakeTransition
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.policies import Limits, OnInterrupt
from raincheck.core.records import Attempt, InstanceState, Lease, Progress, Task
from raincheck.core.values import Payload, check_aware, check_name, check_size, clip, encode
from raincheck.errors import AlreadyRecorded, InvalidValue, TooLarge, WrongState

MAX_OCCURRENCES = 1 << 31


def decide_note(task: Task, note: Note, now: datetime, *, actor: str, limits: Limits) -> Change | None:
    """Return the change that the report makes; None if it reports nothing new."""
    _check(task, note, limits)
    progress = merge_progress(task.progress, note.progress)
    message = task.status_message if note.status_message is None else clip(note.status_message)
    parts = _describe_note(note)
    has_new_message = message != task.status_message
    if not parts and not has_new_message and progress == task.progress and note.variables is None:
        return None
    change = apply_event(
        task,
        Event.NOTE,
        now,
        actor=actor,
        note=", ".join(parts) or message,
        recorded=(bool(parts) or has_new_message) and task.entries < limits.notes,
        progress=progress,
        status_message=message,
        open_inputs=task.open_inputs + len(note.input_requests),
        # A task that makes progress may be interrupted any number of times; only repeated failure at the same place
        # counts.
        failures=0 if note.steps else task.failures,
    )
    return replace(
        change,
        steps=note.steps,
        inputs=note.input_requests,
        artifacts=note.artifacts,
        variables=note.variables,
        spawned=note.spawned,
        quota=note.quota,
    )


def merge_progress(old: Progress | None, new: Progress | None) -> Progress | None:
    """Merge progress, which never goes backwards: a later attempt that starts over shows the earlier one's progress."""
    if old is None or new is None:
        return new or old
    return new if new.done >= old.done else Progress(old.done, new.total)


def _describe_note(note: Note) -> list[str]:
    return [
        *(f"step {step.name}" for step in note.steps),
        *(f"asked {question.key}" for question in note.input_requests),
        *(f"stored {artifact.name}" for artifact in note.artifacts),
        *describe_spawned(note.spawned),
    ]


def _check(task: Task, note: Note, limits: Limits) -> None:
    steps = Counter((step.name, step.occurrence) for step in note.steps)
    keys = Counter(question.key for question in note.input_requests)
    for step in note.steps:
        if steps[step.name, step.occurrence] > 1:
            raise AlreadyRecorded.step(task.id, step.name, step.occurrence)
        check_name(step.name, what="a step's name")
        if not 0 <= step.occurrence < MAX_OCCURRENCES:
            raise InvalidValue(
                f"step {step.name!r} can't have the occurrence {step.occurrence}: use 0 to {MAX_OCCURRENCES - 1}"
            )
        if step.fingerprint:
            check_name(step.fingerprint, what=f"the fingerprint of step {step.name!r}")
        check_size(step.result, limits.step, what=f"the result of step {step.name!r}")
    check_spawned(note.spawned, task, parents=(None, task.id))
    for question in note.input_requests:
        if not question.is_open:
            raise InvalidValue(f"question {question.key!r} already has an answer: ask it without one")
        if keys[question.key] > 1:
            raise AlreadyRecorded.input_request(task.id, question.key)
        check_name(question.key, what="a question's key")
        check_size(question.request, limits.question, what=f"question {question.key!r}")
    for artifact in note.artifacts:
        check_name(artifact.name, what="an artifact's name")
        check_size(artifact.content, limits.artifact, what=f"artifact {artifact.name!r}")
    check_size(note.variables, limits.variables, what="variables")
    open_inputs = task.open_inputs + len(note.input_requests)
    if open_inputs > limits.open_inputs:
        raise TooLarge(f"task {task.id!r}", open_inputs, limits.open_inputs, "open questions")


MUST_NOT_RUN_TWICE = "this tool must not be run twice"


def claim(task: Task, command: commands.Claim, now: datetime) -> Change:
    lease = Lease(command.holder, now + command.lease_for)
    attempt = Attempt(task.attempt_number + 1, max(now, task.updated_at), lease)
    return apply_event(task, Event.CLAIM, now, actor=command.holder, attempt_number=attempt.number, attempt=attempt)


def decide_attempt_command(
    task: Task, command: commands.AttemptCommand, now: datetime, limits: Limits
) -> Change | None:
    actor = require_attempt(task, command.fence).lease.holder
    match command:
        case commands.Note():
            return decide_note(task, command, now, actor=actor, limits=limits)
        case commands.Park():
            check_aware(command.until)
            if command.seen_signals != task.signals:
                return _stop(
                    task, Event.RELEASE, now, actor, note="an event that it waits for arrived before it parked"
                )
            return _stop(task, Event.PARK, now, actor, due_at=command.until)
        case commands.Release():
            return _release(task, now, actor)
        case commands.Yield():
            # No longer pausing: the task was resumed first, so the attempt continues.
            return apply_event(task, Event.YIELD, now, actor=actor) if task.pausing else None
        case commands.Complete():
            _check_state_number(task, command.state_number)
            return _complete(task, command, now, actor, limits)
        case commands.Fail():
            _check_state_number(task, command.state_number)
            return _fail(task, command, now, actor, limits)
        case _:
            assert_never(command)


def _check_state_number(task: Task, state_number: int | None) -> None:
    """Refuse the end of an attempt that was reached in a state that the instance has left since."""
    if state_number is not None and task.state is not None and task.state.number != state_number:
        raise WrongState(task.id, "the end of its attempt", f"its state number {state_number}", task.state.name)


def interrupt(task: Task, command: commands.Interrupt, now: datetime) -> Change | None:
    next_phase(task, Event.INTERRUPT)
    attempt = task.attempt
    if attempt is None or attempt.lease.expires_at > now:
        return None
    failures = task.failures + 1
    reason = f"attempt {attempt.number} was interrupted: its lease expired (the worker crashed or lost its connection)"
    final_reason = _no_retry_reason(task, failures)
    if final_reason is None:
        change = _stop(task, Event.INTERRUPT, now, command.actor, note=reason, failures=failures)
    else:
        message = f"{reason}, and {final_reason}"
        change = _end_failed(task, Event.FAIL, now, command.actor, _error("interrupted", message), message, failures)
    return replace(change, lease_seen=attempt.lease.expires_at)


def expire(task: Task, command: commands.Expire, now: datetime) -> Change | None:
    next_phase(task, Event.EXPIRE)
    if task.deadline_at is None or task.deadline_at > now:
        return None
    message = "the task did not end before its deadline"
    if task.status_message:
        message = f"{message}: its last status was {task.status_message!r}"
    return _end_failed(task, Event.EXPIRE, now, command.actor, _error("expired", message), message, task.failures)


def _stop(
    task: Task,
    event: Event,
    now: datetime,
    actor: str,
    *,
    note: str | None = None,
    detail: Payload | None = None,
    **fields: Any,  # noqa: ANN401 - the fields of a task
) -> Change:
    """Leave `running` without ending: for the event's phase or, if the task is to be paused, for `paused`."""
    event = Event.YIELD if task.pausing else event
    return apply_event(task, event, now, actor=actor, note=note, detail=detail, **fields)


def _complete(task: Task, command: commands.Complete, now: datetime, actor: str, limits: Limits) -> Change:
    check_size(command.result, limits.outcome, what="the result")
    # No children: their parent would have ended before they started.
    check_spawned(command.spawned, task, parents=(None,))
    change = apply_event(
        task,
        Event.COMPLETE,
        now,
        actor=actor,
        note=", ".join(describe_spawned(command.spawned)) or None,
        outcome=command.result,
        is_error=command.is_error,
        status_message=clip(command.status_message),
    )
    return replace(change, spawned=command.spawned, quota=command.quota) if command.spawned else change


def _release(task: Task, now: datetime, actor: str) -> Change:
    if task.retry.on_interrupt is OnInterrupt.RETRY:
        return _stop(task, Event.RELEASE, now, actor)
    message = f"attempt {task.attempt_number} was interrupted: its worker shut down, and {MUST_NOT_RUN_TWICE}"
    return _end_failed(task, Event.FAIL, now, actor, _error("interrupted", message), message, task.failures)


def _fail(task: Task, command: commands.Fail, now: datetime, actor: str, limits: Limits) -> Change:
    check_size(command.error, limits.outcome, what="the error")
    check_size(command.detail, limits.outcome, what="the detail of the error")
    failures = task.failures + 1
    if not (command.retryable and task.retry.may_retry(failures)):
        return _end_failed(task, Event.FAIL, now, actor, command.error, command.message, failures, command.detail)
    due_at = now + task.retry.wait(failures, command.chance)
    detail = command.error if command.detail is None else command.detail
    return _stop(task, Event.RETRY, now, actor, note=command.message, detail=detail, failures=failures, due_at=due_at)


def _no_retry_reason(task: Task, failures: int) -> str | None:
    if task.retry.on_interrupt is OnInterrupt.FAIL:
        return MUST_NOT_RUN_TWICE
    if not task.retry.may_retry(failures):
        return f"it was the last of {task.retry.attempts} allowed attempts"
    return None


def _end_failed(
    task: Task,
    event: Event,
    now: datetime,
    actor: str,
    error: Payload,
    message: str,
    failures: int,
    detail: Payload | None = None,
) -> Change:
    return apply_event(
        task,
        event,
        now,
        actor=actor,
        note=message,
        detail=error if detail is None else detail,
        outcome=error,
        status_message=clip(message),
        failures=failures,
    )


def _error(kind: str, message: str) -> Payload:
    return encode({"kind": kind, "message": message})


def transition(task: Task, command: TakeTransition, now: datetime, limits: Limits) -> Change:
    next_phase(task, Event.TRANSITION)
    is_from_outside = command.fence is None
    change = _move(
        task,
        Event.TRANSITION,
        command,
        now,
        actor=command.actor,
        # An attempt or a parked task that waits in the old state has to check again.
        signals=task.signals + 1 if is_from_outside else task.signals,
        due_at=None,
        status_message=clip(command.to_state if command.reason is None else f"{command.to_state}: {command.reason}"),
        # Progress in the old state does not apply to the new one.
        progress=None,
        # The task makes progress: only repeated failure at the same place counts.
        failures=0,
    )
    check_size(command.variables, limits.variables, what="the data of the instance")
    return change


def _move(
    task: Task,
    event: Event,
    command: TakeTransition,
    now: datetime,
    *,
    actor: str,
    **fields: Any,  # noqa: ANN401 - as above
) -> Change:
    """Return the change that moves an instance to its next state, described for people and for programs."""
    state = _next_state(task, command, now)
    note = f"{command.action}: {command.from_state} -> {command.to_state}"
    if command.reason is not None:
        note = f"{note} ({command.reason})"
    detail = encode(
        {"action": command.action, "from": command.from_state, "to": command.to_state, "reason": command.reason},
        what=f"a transition of task {task.id!r}",
    )
    change = apply_event(task, event, now, actor=actor, note=note, detail=detail, state=state, **fields)
    return replace(change, variables=command.variables)


def _next_state(task: Task, command: TakeTransition, now: datetime) -> InstanceState:
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


def due(task: Task, command: commands.Due, now: datetime) -> Change | None:
    next_phase(task, Event.DUE)
    is_due = task.due_at is not None and task.due_at <= now
    return apply_event(task, Event.DUE, now, actor=command.actor) if is_due else None


def signal(task: Task, command: commands.Signal, now: datetime) -> Change:
    # Any time that the task waits for is cleared, also while it is paused. An answer does the same.
    signals = task.signals + 1
    return apply_event(task, Event.SIGNAL, now, actor=command.actor, note=command.note, due_at=None, signals=signals)


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
    change = apply_event(
        task,
        Event.ANSWER,
        now,
        actor=command.actor,
        note=", ".join(f"answered {question.key}" for question in answered),
        due_at=None,
        signals=task.signals + len(answered),
        open_inputs=task.open_inputs - len(answered),
    )
    return replace(change, inputs=answered)


def cancel(task: Task, command: commands.Cancel, now: datetime) -> Change:
    next_phase(task, Event.CANCEL)
    if command.into is not None:
        # An instance, whose definition has a state for that.
        message = clip(command.reason or command.into.to_state)
        return _move(task, Event.CANCEL, command.into, now, actor=command.actor, status_message=message)
    message = clip(command.reason or "cancelled")
    return apply_event(task, Event.CANCEL, now, actor=command.actor, note=command.reason, status_message=message)


def pause(task: Task, command: commands.Pause, now: datetime) -> Change | None:
    if task.phase is Phase.PAUSED or task.pausing:
        return None
    pausing = task.phase is Phase.RUNNING
    return apply_event(task, Event.PAUSE, now, actor=command.actor, note=command.reason, pausing=pausing)


def resume(task: Task, command: commands.Resume, now: datetime) -> Change | None:
    if task.phase is Phase.RUNNING and not task.pausing:
        return None
    return apply_event(task, Event.RESUME, now, actor=command.actor, pausing=False, due_at=task.due_at or now)


DEFAULT_LIMITS = Limits()


def decide(task: Task, command: commands.Command, now: datetime, limits: Limits = DEFAULT_LIMITS) -> Change | None:
    """Return the change that the command makes to the task; None if there is nothing to change.

    Raises:
        IllegalTransition: the task's phase does not allow it.
        LeaseLost: the command comes from an attempt that no longer holds the task.
        WrongState: the instance is not in the state that the command was decided in.
        TooLarge: a value in the command exceeds its limit.
    """
    if isinstance(command, commands.AttemptCommand):
        return decide_attempt_command(task, command, now, limits)
    match command:
        case commands.Claim():
            return claim(task, command, now)
        case commands.Interrupt():
            return interrupt(task, command, now)
        case commands.Expire():
            return expire(task, command, now)
        case commands.Due():
            return due(task, command, now)
        case commands.Signal():
            return signal(task, command, now)
        case commands.Answer():
            return answer(task, command, now, limits)
        case commands.TakeTransition():
            return transition(task, command, now, limits)
        case commands.Cancel():
            return cancel(task, command, now)
        case commands.Pause():
            return pause(task, command, now)
        case commands.Resume():
            return resume(task, command, now)
        case _:
            assert_never(command)
