"""The one place that decides: (task, command, now) → change.

`decide` looks at a task as it was read and says what would become of it. It changes nothing: a store keeps the
change, and only if the task is still the one that was read. So a rule is written once, is pure, and holds for
every store.
"""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from raincheck.core import commands as ask
from raincheck.core.change import Change
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.limits import Limits
from raincheck.core.move import move, target
from raincheck.core.note import decide_note
from raincheck.core.payload import Payload, check_size, encode
from raincheck.core.records import Attempt, Lease, Task
from raincheck.core.retry import OnInterrupt
from raincheck.core.text import clip
from raincheck.errors import LeaseLost

DEFAULT_LIMITS = Limits()


def decide(task: Task, command: ask.Command, now: datetime, limits: Limits = DEFAULT_LIMITS) -> Change | None:
    """What becomes of the task; None if there is nothing to change.

    Raises:
        IllegalTransition: the task's phase does not allow it.
        LeaseLost: the command comes from an attempt that no longer holds the task.
        TooLarge: something in the command lies beyond its bound.
    """
    match command:
        case ask.Claim():
            return _claim(task, command, now)
        case ask.Note() | ask.Park() | ask.Release() | ask.Yield() | ask.Complete() | ask.Fail():
            return _from_attempt(task, command, now, limits)
        case ask.Interrupt():
            return _interrupt(task, command, now)
        case ask.Expire():
            return _expire(task, command, now)
        case ask.Due():
            target(task, Event.DUE)
            is_due = task.due_at is not None and task.due_at <= now
            return move(task, Event.DUE, now, actor=command.actor) if is_due else None
        case ask.Signal():
            counts = {"signals": task.signals + 1, "open_inputs": task.open_inputs}
            return _signalled(task, Event.SIGNAL, now, command.actor, command.note, **counts)
        case ask.Answer():
            return _answer(task, command, now, limits)
        case ask.Cancel():
            message = command.reason or "cancelled"
            return move(task, Event.CANCEL, now, actor=command.actor, note=command.reason, status_message=clip(message))
        case ask.Pause():
            return _pause(task, command, now)
        case ask.Resume():
            return _resume(task, command, now)
        case _:
            assert_never(command)


def _claim(task: Task, command: ask.Claim, now: datetime) -> Change:
    attempt = Attempt(task.fence + 1, max(now, task.updated_at), Lease(command.holder, now + command.lease_for))
    return move(task, Event.CLAIM, now, actor=command.holder, fence=attempt.number, attempt=attempt)


def _from_attempt(task: Task, command: ask.AttemptCommand, now: datetime, limits: Limits) -> Change | None:
    attempt = task.attempt
    if attempt is None or attempt.number != command.fence:
        raise LeaseLost(task.id, command.fence)
    actor = attempt.lease.holder
    match command:
        case ask.Note():
            return decide_note(task, command, now, actor=actor, limits=limits)
        case ask.Park():
            if command.seen != task.signals:
                return _stop(task, Event.RELEASE, now, actor, note="something it waits for came in between")
            return _stop(task, Event.PARK, now, actor, due_at=command.until)
        case ask.Release():
            return _stop(task, Event.RELEASE, now, actor)
        case ask.Yield():
            # Not pausing any more: somebody resumed it first, so the attempt just goes on.
            return move(task, Event.YIELD, now, actor=actor) if task.pausing else None
        case ask.Complete():
            check_size(command.result, limits.outcome, what="the result")
            return move(
                task,
                Event.COMPLETE,
                now,
                actor=actor,
                outcome=command.result,
                is_error=command.is_error,
                status_message=clip(command.status_message),
            )
        case ask.Fail():
            return _fail(task, command, now, actor, limits)
        case _:
            assert_never(command)


def _stop(
    task: Task,
    event: Event,
    now: datetime,
    actor: str,
    *,
    note: str | None = None,
    error: Payload | None = None,
    failures: int | None = None,
    due_at: datetime | None = None,
) -> Change:
    """Leave `running` without ending: to where the event leads or, if the task is to be paused, to `paused`."""
    return move(
        task,
        Event.YIELD if task.pausing else event,
        now,
        actor=actor,
        note=note,
        detail=error,
        failures=task.failures if failures is None else failures,
        due_at=due_at,
    )


def _fail(task: Task, command: ask.Fail, now: datetime, actor: str, limits: Limits) -> Change:
    check_size(command.error, limits.outcome, what="the error")
    failures = task.failures + 1
    if not (command.retryable and task.retry.may_retry(failures)):
        return _end_failed(task, Event.FAIL, now, actor, command.error, command.message, failures)
    due_at = now + task.retry.wait(failures, command.chance)
    return _stop(
        task, Event.RETRY, now, actor, note=command.message, error=command.error, failures=failures, due_at=due_at
    )


def _interrupt(task: Task, command: ask.Interrupt, now: datetime) -> Change | None:
    target(task, Event.INTERRUPT)
    attempt = task.attempt
    if attempt is None or attempt.lease.expires_at > now:
        return None
    failures = task.failures + 1
    what = f"attempt {attempt.number} was interrupted: its worker stopped without a word"
    end = _why_no_retry(task, failures)
    if end is None:
        change = _stop(task, Event.INTERRUPT, now, command.actor, note=what, failures=failures)
    else:
        message = f"{what}, and {end}"
        change = _end_failed(task, Event.FAIL, now, command.actor, _error("interrupted", message), message, failures)
    return replace(change, lease_seen=attempt.lease.expires_at)


def _why_no_retry(task: Task, failures: int) -> str | None:
    if task.retry.on_interrupt is OnInterrupt.FAIL:
        return "this tool must not be run twice"
    if not task.retry.may_retry(failures):
        return f"it was the last of {task.retry.attempts} allowed"
    return None


def _expire(task: Task, command: ask.Expire, now: datetime) -> Change | None:
    target(task, Event.EXPIRE)
    if task.deadline_at is None or task.deadline_at > now:
        return None
    message = "the task did not end before its deadline"
    return _end_failed(task, Event.EXPIRE, now, command.actor, _error("expired", message), message, task.failures)


def _end_failed(
    task: Task, event: Event, now: datetime, actor: str, error: Payload, message: str, failures: int
) -> Change:
    return move(
        task,
        event,
        now,
        actor=actor,
        note=message,
        detail=error,
        outcome=error,
        status_message=clip(message),
        failures=failures,
    )


def _error(kind: str, message: str) -> Payload:
    return encode({"kind": kind, "message": message})


def _answer(task: Task, command: ask.Answer, now: datetime, limits: Limits) -> Change | None:
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


def _signalled(
    task: Task, event: Event, now: datetime, actor: str, note: str, *, signals: int, open_inputs: int
) -> Change:
    """Something came that the task may wait for: it waits for no moment any more, also not when it is paused."""
    return move(task, event, now, actor=actor, note=note, due_at=None, signals=signals, open_inputs=open_inputs)


def _pause(task: Task, command: ask.Pause, now: datetime) -> Change | None:
    if task.phase is Phase.PAUSED or task.pausing:
        return None
    pausing = task.phase is Phase.RUNNING
    return move(task, Event.PAUSE, now, actor=command.actor, note=command.reason, pausing=pausing)


def _resume(task: Task, command: ask.Resume, now: datetime) -> Change | None:
    if task.phase is Phase.RUNNING and not task.pausing:
        return None
    return move(task, Event.RESUME, now, actor=command.actor, pausing=False, due_at=task.due_at or now)
