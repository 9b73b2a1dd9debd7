"""Park, release, pause and resume: a task leaves `running` without ending, and misses no event."""

import pytest

from raincheck.core.commands import (
    Answer,
    AttemptCommand,
    Claim,
    Command,
    Due,
    Fail,
    Interrupt,
    Note,
    Park,
    Pause,
    Release,
    Resume,
    Signal,
    Yield,
)
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.records import Lease, Progress
from raincheck.core.values import encode
from raincheck.errors import InvalidValue, LeaseLost
from tests.support.core.tasks import CLAIM, ERROR, SITUATIONS, after, asking, at, change, created, question, running

SIGNAL = Signal("worker-2", "child task-2 ended")


def test_a_claim_begins_an_attempt_under_a_lease_and_raises_the_fence() -> None:
    task = change(created(), CLAIM, 5).after
    assert task.attempt is not None
    assert (task.attempt_number, task.attempt.number, task.attempt.started_at) == (1, 1, at(5))
    assert task.attempt.lease == Lease("worker-1", at(35))


def test_every_further_attempt_has_a_higher_number() -> None:
    task = created()
    for number in range(1, 6):
        task = after(task, Claim(f"worker-{number}", at(30) - at(0)))
        assert (task.attempt_number, task.attempt and task.attempt.number) == (number, number)
        task = after(task, Release(number))
        assert (task.attempt_number, task.attempt) == (number, None)


def test_a_task_parked_until_a_time_is_due_then() -> None:
    parked = after(running(), Park(1, seen_signals=0, until=at(20)))
    assert (parked.phase, parked.due_at) == (Phase.PARKED, at(20))
    assert decide(parked, Due(), at(19.999999)) is None
    woken = change(parked, Due(), 20)
    assert (woken.after.phase, woken.after.due_at) == (Phase.QUEUED, None)
    assert woken.entry is not None
    assert woken.entry.actor == "sweeper"


def test_a_task_parked_without_a_time_has_no_due_time() -> None:
    parked = after(running(), Park(1, seen_signals=0))
    assert (parked.phase, parked.due_at) == (Phase.PARKED, None)
    assert decide(parked, Due(), at(10**6)) is None
    assert after(parked, SIGNAL).phase is Phase.QUEUED


def test_parking_until_a_time_without_a_time_zone_is_refused() -> None:
    # If it were stored, it could not be compared with other times, and every claim would fail.
    with pytest.raises(InvalidValue):
        decide(running(), Park(1, seen_signals=0, until=at(20).replace(tzinfo=None)), at(0))


def test_a_task_that_missed_an_answer_is_queued_instead_of_parked() -> None:
    task = asking("publish?")
    answered = after(task, Answer((question(),), {"publish?": encode("yes")}, "alice"))
    assert (answered.phase, answered.signals) == (Phase.RUNNING, 1)
    missed = change(answered, Park(1, seen_signals=0, until=at(20)))
    assert (missed.after.phase, missed.after.due_at) == (Phase.QUEUED, None)
    assert missed.entry is not None
    assert missed.entry.event is Event.RELEASE
    assert missed.entry.note == "an event that it waits for arrived before it parked"
    assert after(answered, Park(1, seen_signals=1, until=at(20))).phase is Phase.PARKED


def test_a_task_that_missed_the_end_of_a_child_is_queued_instead_of_parked() -> None:
    task = after(running(), SIGNAL, SIGNAL)
    assert task.signals == 2
    assert [after(task, Park(1, seen_signals=seen)).phase for seen in (0, 1, 2)] == [
        Phase.QUEUED,
        Phase.QUEUED,
        Phase.PARKED,
    ]


def test_a_task_that_must_not_be_run_twice_is_not_released_but_fails() -> None:
    task = running(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    released = change(task, Release(1), 5)
    assert released.after.phase is Phase.FAILED
    assert "interrupted: its worker shut down, and this tool must not be run twice" in (
        released.after.status_message or ""
    )


def test_a_released_task_may_be_claimed_at_once() -> None:
    released = change(running(), Release(1), 5)
    assert (released.after.phase, released.after.failures) == (Phase.QUEUED, 0)
    assert released.entry is not None
    assert released.entry.actor == "worker-1"
    assert after(released.after, CLAIM, seconds=5).attempt_number == 2


@pytest.mark.parametrize("phase", ["queued", "running", "parked for an answer", "paused"])
def test_a_signal_is_counted_in_every_live_phase(phase: str) -> None:
    signalled = change(SITUATIONS[phase], SIGNAL)
    assert signalled.after.signals == 1
    assert signalled.entry is not None
    assert (signalled.entry.actor, signalled.entry.note) == ("worker-2", "child task-2 ended")


def test_pausing_a_running_task_lets_its_attempt_continue_to_its_next_checkpoint() -> None:
    pausing = change(running(), Pause("operator", "too busy"))
    assert (pausing.after.phase, pausing.after.pausing) == (Phase.RUNNING, True)
    assert pausing.after.attempt == pausing.before.attempt
    assert pausing.entry is not None
    assert (pausing.entry.actor, pausing.entry.note) == ("operator", "too busy")
    assert after(pausing.after, Note(1, Progress(1))).pausing
    assert after(pausing.after, Yield(1)).phase is Phase.PAUSED


@pytest.mark.parametrize(
    "command",
    [Park(1, seen_signals=0, until=at(20)), Park(1, seen_signals=9), Release(1), Fail(1, ERROR, "broke"), Yield(1)],
    ids=lambda command: type(command).__name__,
)
def test_an_attempt_that_stops_while_the_task_is_pausing_leaves_it_paused(command: AttemptCommand) -> None:
    stopped = change(after(running(), Pause("operator")), command)
    assert stopped.entry is not None
    assert stopped.entry.event is Event.YIELD
    assert (stopped.after.phase, stopped.after.pausing, stopped.after.attempt) == (Phase.PAUSED, False, None)


def test_an_attempt_that_is_interrupted_while_the_task_is_pausing_leaves_it_paused() -> None:
    cut_off = change(after(running(), Pause("operator")), Interrupt(), 30)
    assert (cut_off.after.phase, cut_off.after.failures, cut_off.after.pausing) == (Phase.PAUSED, 1, False)
    assert cut_off.lease_seen == at(30)


def test_a_pausing_task_keeps_its_due_time() -> None:
    pausing = after(running(retry=RetryPolicy(jitter=0, first_wait=at(8) - at(0))), Pause("operator"))
    assert after(pausing, Park(1, seen_signals=0, until=at(20))).due_at == at(20)
    assert after(pausing, Park(1, seen_signals=0)).due_at is None
    failed = after(pausing, Fail(1, ERROR, "broke"), seconds=1)
    assert (failed.phase, failed.due_at, failed.failures) == (Phase.PAUSED, at(9), 1)


def test_a_resume_before_the_attempt_stopped_lets_it_continue() -> None:
    resumed = after(running(), Pause("operator"), Resume("operator"))
    assert (resumed.phase, resumed.pausing, resumed.due_at) == (Phase.RUNNING, False, None)
    assert resumed.attempt is not None
    assert decide(resumed, Yield(1), at(5)) is None
    assert after(resumed, Release(1)).phase is Phase.QUEUED


def test_a_resumed_task_keeps_its_due_time() -> None:
    resumed = after(SITUATIONS["paused"], Resume("operator"), seconds=5)
    assert (resumed.phase, resumed.due_at) == (Phase.PARKED, at(20))


@pytest.mark.parametrize("situation", ["queued", "parked for an answer"])
def test_a_resumed_task_without_a_due_time_is_due_at_once(situation: str) -> None:
    resumed = after(SITUATIONS[situation], Pause("operator"), Resume("operator"), seconds=5)
    assert (resumed.phase, resumed.due_at) == (Phase.PARKED, at(5))
    assert after(resumed, Due(), CLAIM, seconds=5).attempt_number == 2


def test_pausing_twice_and_resuming_a_running_task_change_nothing() -> None:
    pausing = after(running(), Pause("operator"))
    for task in (pausing, after(pausing, Yield(1))):
        assert decide(task, Pause("operator"), at(5)) is None
    assert decide(running(), Resume("operator"), at(5)) is None


WAKES: list[Command] = [SIGNAL, Answer((question(),), {"publish?": encode("yes")}, "alice")]


@pytest.mark.parametrize("wake", WAKES, ids=lambda wake: type(wake).__name__)
def test_an_event_during_a_pause_is_not_missed_after_the_resume(wake: Command) -> None:
    waiting = after(asking("publish?"), Park(1, seen_signals=0, until=at(86_400)), Pause("operator"))
    resumed = after(waiting, wake, Resume("operator"), seconds=5)
    assert change(resumed, Due(), 5).after.phase is Phase.QUEUED


@pytest.mark.parametrize("wake", WAKES, ids=lambda wake: type(wake).__name__)
def test_an_event_that_wakes_a_parked_task_clears_its_due_time(wake: Command) -> None:
    woken = after(asking("publish?"), Park(1, seen_signals=0, until=at(86_400)), wake)
    assert (woken.phase, woken.due_at) == (Phase.QUEUED, None)


def test_a_stale_worker_can_do_nothing_after_another_attempt_started() -> None:
    task = after(running(), Interrupt(), seconds=30)
    task = after(task, Claim("worker-2", at(30) - at(0)), seconds=31)
    stale: list[AttemptCommand] = [
        Note(1, Progress(1)),
        Park(1, seen_signals=0),
        Release(1),
        Yield(1),
        Fail(1, ERROR, "broke"),
    ]
    for command in stale:
        with pytest.raises(LeaseLost):
            decide(task, command, at(32))
