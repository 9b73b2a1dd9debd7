"""Failed and interrupted attempts, and tasks past their deadline: the effect of the retry policy."""

from datetime import timedelta

import pytest

from raincheck.core.commands import Claim, Complete, Due, Expire, Fail, Interrupt, Pause
from raincheck.core.decide import decide
from raincheck.core.lifecycle import LIVE_PHASES, Event, Phase
from raincheck.core.policies import Limits, OnInterrupt, RetryPolicy
from raincheck.core.values import Payload, decode, encode
from raincheck.errors import IllegalTransition, TooLarge
from tests.support.core.tasks import CLAIM, ERROR, SITUATIONS, after, at, change, created, running

STEADY = RetryPolicy(attempts=3, first_wait=timedelta(seconds=2), factor=3.0, jitter=0.5)
ONCE = RetryPolicy(attempts=1)
NEVER_TWICE = RetryPolicy(attempts=3, on_interrupt=OnInterrupt.FAIL)


def test_a_failed_attempt_is_retried_after_a_wait() -> None:
    failed = change(running(retry=STEADY), Fail(1, ERROR, "broke"), 10)
    assert (failed.after.phase, failed.after.due_at, failed.after.failures) == (Phase.PARKED, at(12), 1)
    assert failed.entry is not None
    assert (failed.entry.event, failed.entry.note, failed.entry.detail) == (Event.RETRY, "broke", ERROR)
    assert failed.entry.actor == "worker-1"
    assert failed.outcome is None
    assert failed.after.status_message is None


def test_waits_grow_with_every_failure_and_jitter_shortens_them() -> None:
    first = after(running(retry=STEADY), Fail(1, ERROR, "broke", chance=1.0), seconds=10)
    assert first.due_at == at(11)
    second = after(first, Due(), CLAIM, Fail(2, ERROR, "broke", chance=0.5), seconds=20)
    assert (second.due_at, second.failures) == (at(20 + 6 * 0.75), 2)


def test_the_last_attempt_allowed_fails_the_task() -> None:
    task = created(retry=STEADY)
    for number in (1, 2):
        task = after(task, CLAIM, Fail(number, ERROR, "broke"), seconds=100 * number)
        task = after(task, Due(), seconds=100 * number + 50)
    last = change(after(task, CLAIM, seconds=300), Fail(3, ERROR, "broke"), 300)
    assert (last.after.phase, last.after.failures, last.after.attempt_number) == (Phase.FAILED, 3, 3)
    assert (last.outcome, last.after.status_message) == (ERROR, "broke")
    assert last.entry is not None
    assert (last.entry.event, last.entry.note, last.entry.detail) == (Event.FAIL, "broke", ERROR)


def test_the_detail_of_an_error_is_shown_to_the_operator_and_never_to_the_caller() -> None:
    detail = encode({"traceback": "line 1"})
    for policy, event in ((STEADY, Event.RETRY), (ONCE, Event.FAIL)):
        failed = change(running(retry=policy), Fail(1, ERROR, "broke", detail=detail))
        assert failed.entry is not None
        assert (failed.entry.event, failed.entry.detail) == (event, detail)
        assert failed.outcome == (ERROR if event is Event.FAIL else None)


def test_the_detail_of_an_error_has_a_limit() -> None:
    with pytest.raises(TooLarge, match="the detail of the error"):
        change(running(), Fail(1, ERROR, "broke", detail=Payload(b"1" * 100)), limits=Limits(outcome=99))


def test_an_error_that_is_not_retryable_fails_the_task_at_once() -> None:
    failed = after(running(retry=STEADY), Fail(1, ERROR, "broke", retryable=False))
    assert (failed.phase, failed.failures) == (Phase.FAILED, 1)


def test_a_pausing_task_fails_when_no_attempt_is_left() -> None:
    pausing = after(running(retry=ONCE), Pause("operator"))
    assert after(pausing, Fail(1, ERROR, "broke")).phase is Phase.FAILED
    assert after(pausing, Interrupt(), seconds=30).phase is Phase.FAILED


def test_an_error_over_its_limit_is_refused() -> None:
    limits = Limits(outcome=10)
    with pytest.raises(TooLarge, match="the error has 11 bytes") as too_large:
        decide(running(), Fail(1, Payload(b"1" * 11), "broke"), at(5), limits)
    assert (too_large.value.what, too_large.value.size, too_large.value.limit) == ("the error", 11, 10)
    assert decide(running(), Fail(1, Payload(b"1" * 10), "broke"), at(5), limits) is not None


def test_a_lease_that_has_not_expired_is_not_interrupted() -> None:
    task = running()
    assert decide(task, Interrupt(), at(29.999999)) is None
    assert decide(task, Interrupt(), at(30)) is not None


def test_an_interrupted_task_returns_to_the_queue_at_once() -> None:
    interrupted = change(running(retry=STEADY), Interrupt(), 30)
    task = interrupted.after
    assert (task.phase, task.failures, task.due_at, task.attempt) == (Phase.QUEUED, 1, None, None)
    assert interrupted.entry is not None
    assert (interrupted.entry.event, interrupted.entry.actor) == (Event.INTERRUPT, "sweeper")
    assert (
        interrupted.entry.note
        == "attempt 1 was interrupted: its lease expired (the worker crashed or lost its connection)"
    )
    assert after(task, Claim("worker-2", timedelta(seconds=30)), seconds=30).attempt_number == 2


@pytest.mark.parametrize("retry", [STEADY, ONCE, NEVER_TWICE], ids=["retry", "last attempt", "never twice"])
def test_an_interrupt_is_valid_only_for_the_lease_that_was_read(retry: RetryPolicy) -> None:
    task = running(retry=retry)
    assert task.attempt is not None
    assert change(task, Interrupt(), 31).lease_seen == task.attempt.lease.expires_at == at(30)


def test_only_an_interrupt_depends_on_the_lease() -> None:
    assert change(running(), Complete(1, encode("report"))).lease_seen is None
    assert change(running(deadline_at=at(5)), Expire(), 5).lease_seen is None
    assert change(running(), Fail(1, ERROR, "broke")).lease_seen is None


def test_a_tool_that_must_not_be_run_twice_fails_when_it_is_interrupted() -> None:
    interrupted = change(running(retry=NEVER_TWICE), Interrupt(), 30)
    message = (
        "attempt 1 was interrupted: its lease expired (the worker crashed or lost its connection), "
        "and this tool must not be run twice"
    )
    assert (interrupted.after.phase, interrupted.after.failures) == (Phase.FAILED, 1)
    assert interrupted.after.status_message == message
    assert interrupted.outcome is not None
    assert decode(interrupted.outcome) == {"kind": "interrupted", "message": message}
    assert interrupted.entry is not None
    assert interrupted.entry.event is Event.FAIL


def test_a_tool_that_must_not_be_run_twice_may_still_fail_and_be_retried() -> None:
    assert after(running(retry=NEVER_TWICE), Fail(1, ERROR, "broke")).phase is Phase.PARKED


def test_a_task_whose_attempts_are_all_interrupted_fails_in_the_end() -> None:
    task = created(retry=STEADY)
    for number in (1, 2):
        task = after(after(task, CLAIM, seconds=100 * number), Interrupt(), seconds=100 * number + 30)
        assert task.phase is Phase.QUEUED
    last = change(after(task, CLAIM, seconds=300), Interrupt(), 330)
    assert (last.after.phase, last.after.failures) == (Phase.FAILED, 3)
    assert last.after.status_message is not None
    assert last.after.status_message.endswith("and it was the last of 3 allowed attempts")


def test_failures_and_interrupts_count_together() -> None:
    task = after(running(retry=STEADY), Interrupt(), seconds=30)
    task = after(task, CLAIM, Fail(2, ERROR, "broke"), seconds=31)
    task = after(task, Due(), CLAIM, seconds=60)
    assert task.failures == 2
    assert after(task, Fail(3, ERROR, "broke"), seconds=61).phase is Phase.FAILED


@pytest.mark.parametrize("phase", sorted(LIVE_PHASES))
def test_a_task_past_its_deadline_expires_in_every_live_phase(phase: Phase) -> None:
    task = next(task for task in SITUATIONS.values() if task.phase is phase)
    assert decide(task, Expire(), at(999.999999)) is None
    expired = change(task, Expire(), 1_000)
    message = "the task did not end before its deadline"
    assert (expired.after.phase, expired.after.status_message) == (Phase.FAILED, message)
    assert expired.after.failures == task.failures
    assert expired.outcome is not None
    assert decode(expired.outcome) == {"kind": "expired", "message": message}
    assert expired.entry is not None
    assert (expired.entry.event, expired.entry.actor) == (Event.EXPIRE, "sweeper")


def test_the_message_of_an_expired_task_includes_its_last_status() -> None:
    expired = change(running().evolve(status_message="upload", deadline_at=at(5)), Expire(), 5)
    assert expired.after.status_message == "the task did not end before its deadline: its last status was 'upload'"


def test_a_live_task_without_a_deadline_never_expires() -> None:
    assert decide(running(), Expire(), at(10**9)) is None


def test_interrupting_a_task_that_is_not_running_is_refused() -> None:
    for task in SITUATIONS.values():
        if task.phase is not Phase.RUNNING:
            with pytest.raises(IllegalTransition):
                decide(task, Interrupt(), at(0))


def test_expiring_or_waking_an_ended_task_is_refused() -> None:
    for phase in ("completed", "failed", "cancelled"):
        for command in (Expire(), Due()):
            with pytest.raises(IllegalTransition):
                decide(SITUATIONS[phase], command, at(0))
