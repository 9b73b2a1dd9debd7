"""What becomes of a task by its attempts: they begin, report, stop, end, go wrong, or are cut off."""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from raincheck.core import commands as ask
from raincheck.core.change import Change
from raincheck.core.lifecycle import Event
from raincheck.core.limits import Limits
from raincheck.core.move import attempt_of, move, target
from raincheck.core.note import decide_note
from raincheck.core.payload import Payload, check_size, encode
from raincheck.core.records import Attempt, Lease, Task
from raincheck.core.retry import OnInterrupt
from raincheck.core.spawning import check_successors, spawning_words
from raincheck.core.text import check_moment, clip
from raincheck.errors import WrongState

MUST_NOT_RUN_TWICE = "this tool must not be run twice"


def claim(task: Task, command: ask.Claim, now: datetime) -> Change:
    attempt = Attempt(task.fence + 1, max(now, task.updated_at), Lease(command.holder, now + command.lease_for))
    return move(task, Event.CLAIM, now, actor=command.holder, fence=attempt.number, attempt=attempt)


def from_attempt(task: Task, command: ask.AttemptCommand, now: datetime, limits: Limits) -> Change | None:
    actor = attempt_of(task, command.fence).lease.holder
    match command:
        case ask.Note():
            return decide_note(task, command, now, actor=actor, limits=limits)
        case ask.Park():
            check_moment(command.until)
            if command.seen != task.signals:
                return _stop(task, Event.RELEASE, now, actor, note="something it waits for came in between")
            return _stop(task, Event.PARK, now, actor, due_at=command.until)
        case ask.Release():
            return _release(task, now, actor)
        case ask.Yield():
            # Not pausing any more: somebody resumed it first, so the attempt just goes on.
            return move(task, Event.YIELD, now, actor=actor) if task.pausing else None
        case ask.Complete():
            _check_stay(task, command.stay)
            return _complete(task, command, now, actor, limits)
        case ask.Fail():
            _check_stay(task, command.stay)
            return _fail(task, command, now, actor, limits)
        case _:
            assert_never(command)


def _check_stay(task: Task, stay: int | None) -> None:
    """Refuse an end that a process came to in a state that somebody has taken it from since."""
    if stay is not None and task.state is not None and task.state.number != stay:
        raise WrongState(task.id, "the end of its attempt", f"its state number {stay}", task.state.name)


def interrupt(task: Task, command: ask.Interrupt, now: datetime) -> Change | None:
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


def expire(task: Task, command: ask.Expire, now: datetime) -> Change | None:
    target(task, Event.EXPIRE)
    if task.deadline_at is None or task.deadline_at > now:
        return None
    message = "the task did not end before its deadline"
    if task.status_message:
        message = f"{message}: it was at {task.status_message!r}"
    return _end_failed(task, Event.EXPIRE, now, command.actor, _error("expired", message), message, task.failures)


def _stop(
    task: Task,
    event: Event,
    now: datetime,
    actor: str,
    *,
    note: str | None = None,
    detail: Payload | None = None,
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
        detail=detail,
        failures=task.failures if failures is None else failures,
        due_at=due_at,
    )


def _complete(task: Task, command: ask.Complete, now: datetime, actor: str, limits: Limits) -> Change:
    check_size(command.result, limits.outcome, what="the result")
    check_successors(task, command.spawned)
    change = move(
        task,
        Event.COMPLETE,
        now,
        actor=actor,
        note=", ".join(spawning_words(command.spawned)) or None,
        outcome=command.result,
        is_error=command.is_error,
        status_message=clip(command.status_message),
    )
    return replace(change, spawned=command.spawned, quota=command.quota) if command.spawned else change


def _release(task: Task, now: datetime, actor: str) -> Change:
    if task.retry.on_interrupt is OnInterrupt.RETRY:
        return _stop(task, Event.RELEASE, now, actor)
    message = f"attempt {task.fence} was cut off by a worker that shut down, and {MUST_NOT_RUN_TWICE}"
    return _end_failed(task, Event.FAIL, now, actor, _error("interrupted", message), message, task.failures)


def _fail(task: Task, command: ask.Fail, now: datetime, actor: str, limits: Limits) -> Change:
    check_size(command.error, limits.outcome, what="the error")
    check_size(command.detail, limits.outcome, what="the detail of the error")
    failures = task.failures + 1
    if not (command.retryable and task.retry.may_retry(failures)):
        return _end_failed(task, Event.FAIL, now, actor, command.error, command.message, failures, command.detail)
    due_at = now + task.retry.wait(failures, command.chance)
    detail = command.error if command.detail is None else command.detail
    return _stop(task, Event.RETRY, now, actor, note=command.message, detail=detail, failures=failures, due_at=due_at)


def _why_no_retry(task: Task, failures: int) -> str | None:
    if task.retry.on_interrupt is OnInterrupt.FAIL:
        return MUST_NOT_RUN_TWICE
    if not task.retry.may_retry(failures):
        return f"it was the last of {task.retry.attempts} allowed"
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
    return move(
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
