"""Complete and cancel: their effect, and their messages."""

import pytest

from raincheck.core.commands import Cancel, Command, Complete, Fail
from raincheck.core.decide import decide
from raincheck.core.lifecycle import LIVE_PHASES, Phase, Status
from raincheck.core.policies import Limits
from raincheck.core.values import MESSAGE_LIMIT, Payload, encode
from raincheck.errors import IllegalTransition, LeaseLost, TooLarge
from tests.support.core.tasks import ERROR, SITUATIONS, after, at, change, created, running

REPORT = encode({"rows": 3})


def test_a_completed_task_has_its_result_in_the_same_change() -> None:
    completed = change(running(), Complete(1, REPORT, status_message="3 rows"), 9)
    assert (completed.after.phase, completed.after.status) == (Phase.COMPLETED, Status.COMPLETED)
    assert (completed.outcome, completed.after.status_message) == (REPORT, "3 rows")
    assert (completed.after.finished_at, completed.after.is_error, completed.after.failures) == (at(9), False, 0)
    assert completed.entry is not None
    assert completed.entry.actor == "worker-1"


def test_a_result_that_reports_a_tool_error_completes_the_task_with_is_error() -> None:
    completed = change(running(), Complete(1, REPORT, is_error=True))
    assert (completed.after.phase, completed.after.is_error, completed.outcome) == (Phase.COMPLETED, True, REPORT)


def test_a_result_over_its_limit_is_refused() -> None:
    limits = Limits(outcome=10)
    with pytest.raises(TooLarge) as too_large:
        decide(running(), Complete(1, Payload(b"1" * 11)), at(5), limits)
    assert (too_large.value.what, too_large.value.size, too_large.value.limit) == ("the result", 11, 10)
    assert decide(running(), Complete(1, Payload(b"1" * 10)), at(5), limits) is not None


@pytest.mark.parametrize("phase", sorted(LIVE_PHASES))
def test_a_cancel_ends_a_task_in_every_live_phase(phase: Phase) -> None:
    task = next(task for task in SITUATIONS.values() if task.phase is phase)
    cancelled = change(task, Cancel("alice", "changed my mind"), 9)
    assert (cancelled.after.phase, cancelled.after.status_message) == (Phase.CANCELLED, "changed my mind")
    assert cancelled.outcome is None
    assert cancelled.entry is not None
    assert (cancelled.entry.actor, cancelled.entry.note) == ("alice", "changed my mind")


def test_a_cancel_without_a_reason_has_a_default_message() -> None:
    cancelled = change(created(), Cancel("alice"))
    assert cancelled.after.status_message == "cancelled"
    assert cancelled.entry is not None
    assert cancelled.entry.note is None


def test_a_late_completion_does_not_overwrite_a_cancel_nor_a_cancel_a_completion() -> None:
    cancelled = after(running(), Cancel("alice"))
    with pytest.raises(LeaseLost):
        decide(cancelled, Complete(1, REPORT), at(9))
    completed = after(running(), Complete(1, REPORT))
    with pytest.raises(IllegalTransition):
        decide(completed, Cancel("alice"), at(9))


def test_the_error_of_a_refused_command_names_the_phase_and_the_event() -> None:
    completed = after(running(), Complete(1, REPORT))
    with pytest.raises(IllegalTransition) as illegal:
        decide(completed, Cancel("alice"), at(9))
    assert str(illegal.value) == "task 'task-1' is completed: 'cancel' is not possible; nothing changed"


ODD = "\0\ud800" + "x" * 10_000


@pytest.mark.parametrize(
    "command",
    [
        Complete(1, REPORT, status_message=ODD),
        Fail(1, ERROR, ODD, retryable=False),
        Cancel("alice", ODD),
    ],
    ids=lambda command: type(command).__name__,
)
def test_the_last_status_message_of_a_task_is_repaired_for_any_store(command: Command) -> None:
    ended = change(running(), command)
    assert ended.entry is not None
    for words in (ended.after.status_message, ended.entry.note):
        assert words is None or (len(words) <= MESSAGE_LIMIT and "\0" not in words and words.encode())
    assert ended.after.status_message
