"""The effects of a task's end on its parent and its children."""

from collections.abc import Iterable

import pytest

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Command, Complete, Fail, Note, Park
from raincheck.core.effects import (
    ParentLookup,
    cancel_children,
    family_steps,
    may_prune,
    signal_parent,
    write_with_relatives,
)
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.records import Task, TaskId
from raincheck.core.values import encode
from tests.support.core.tasks import CLAIM, ERROR, SITUATIONS, after, at, change, created, running

BROKE = Fail(1, ERROR, "broke", retryable=False)
LIVE = [task for task in SITUATIONS.values() if not task.is_terminal]
ENDED = [task for task in SITUATIONS.values() if task.is_terminal]


class Relatives:
    """A family that records the lookups and the writes."""

    def __init__(self, *tasks: Task) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.written: list[TaskId] = []
        self.asked: list[str] = []

    def find(self, task_id: TaskId) -> Task | None:
        self.asked.append(f"task {task_id}")
        return self.tasks.get(task_id)

    def live_children(self, parent_id: TaskId) -> Iterable[Task]:
        self.asked.append(f"children of {parent_id}")
        return [task for task in self.tasks.values() if task.parent_id == parent_id and not task.is_terminal]

    def write(self, change: Change) -> None:
        assert self.tasks[change.after.id] == change.before
        self.tasks[change.after.id] = change.after
        self.written.append(change.after.id)

    def end(self, task_id: str, command: Command, seconds: float = 5) -> Task:
        write_with_relatives(change(self.tasks[TaskId(task_id)], command, seconds), self)
        return self.tasks[TaskId(task_id)]


def _running(task_id: str, parent_id: str | None = None) -> Task:
    return running(id=TaskId(task_id), parent_id=None if parent_id is None else TaskId(parent_id))


@pytest.mark.parametrize("ending", [Complete(1, encode(1)), BROKE, Cancel("alice")])
def test_a_parked_parent_is_woken_by_the_end_of_its_child(ending: Command) -> None:
    relatives = Relatives(after(_running("parent"), Park(1, seen_signals=0)), _running("child", "parent"))
    ended = relatives.end("child", ending)
    parent = relatives.tasks[TaskId("parent")]
    assert (parent.phase, parent.signals, parent.updated_at) == (Phase.QUEUED, 1, at(5))
    assert relatives.written == ["child", "parent"]
    signal = signal_parent(ended, _running("parent"))
    assert signal is not None
    assert signal.entry is not None
    assert (signal.entry.event, signal.entry.actor) == (Event.SIGNAL, "child")
    assert signal.entry.note == f"child child {ended.phase}"


def test_a_parent_gets_a_signal_in_every_live_phase() -> None:
    child = after(_running("child", "parent"), Cancel("alice"))
    for parent in LIVE:
        signal = signal_parent(child, parent)
        assert signal is not None
        assert signal.after.signals == parent.signals + 1
    for parent in ENDED:
        assert signal_parent(child, parent) is None


@pytest.mark.parametrize(
    ("ending", "reason"), [(Cancel("a"), "its parent was cancelled"), (BROKE, "its parent failed")]
)
def test_children_of_a_task_that_did_not_complete_are_cancelled_in_every_live_phase(
    ending: Command, reason: str
) -> None:
    ended = after(_running("parent"), ending, seconds=5)
    changes = cancel_children(ended, [*LIVE, *ENDED])
    assert [one.before for one in changes] == LIVE
    for one in changes:
        assert (one.after.phase, one.after.status_message) == (Phase.CANCELLED, reason)
        assert one.entry is not None
        assert (one.entry.actor, one.entry.note, one.entry.at) == ("parent", reason, max(at(5), one.before.updated_at))


def test_children_of_a_completed_task_are_not_cancelled() -> None:
    assert cancel_children(after(_running("parent"), Complete(1, encode(1))), LIVE) == []
    relatives = Relatives(_running("parent"), _running("child", "parent"))
    relatives.end("parent", Complete(1, encode(1)))
    assert relatives.written == ["parent"]


def test_cancellation_proceeds_down_the_tree_generation_by_generation() -> None:
    relatives = Relatives(
        _running("top"),
        _running("root", "top"),
        _running("a", "root"),
        _running("b", "root"),
        _running("aa", "a"),
        _running("bb", "b"),
        _running("sibling", "top"),
    )
    relatives.end("root", Cancel("alice"))
    assert relatives.written == ["root", "top", "a", "b", "aa", "bb"]


def test_a_tree_may_be_deeper_than_python_can_recurse() -> None:
    line = [_running(f"{number}", f"{number - 1}") for number in range(5_000)]
    relatives = Relatives(line[-1])
    relatives.live_children = lambda parent_id: line[int(parent_id) + 1 : int(parent_id) + 2]
    relatives.tasks = {task.id: task for task in line}
    relatives.end("0", Cancel("alice"))
    assert len(relatives.written) == 5_000


def test_a_change_that_does_not_end_a_task_looks_up_no_relatives() -> None:
    relatives = Relatives(_running("parent"), _running("child", "parent"))
    for task_id in ("parent", "child"):
        relatives.end(task_id, Note(1, status_message="working"))
    relatives.end("child", Park(1, seen_signals=0))
    assert relatives.asked == []


def test_the_end_of_a_task_without_relatives_takes_at_most_one_lookup() -> None:
    relatives = Relatives(_running("done"), _running("cancelled"))
    relatives.end("done", Complete(1, encode(1)))
    assert relatives.asked == []
    relatives.end("cancelled", Cancel("alice"))
    assert relatives.asked == ["children of cancelled"]


def test_relatives_in_a_circle_are_each_ended_once() -> None:
    relatives = Relatives(_running("a", "c"), _running("b", "a"), _running("c", "b"), _running("self", "self"))
    for task_id in ("a", "self"):
        relatives.end(task_id, Cancel("alice"))
    assert {task.phase for task in relatives.tasks.values()} == {Phase.CANCELLED}


def test_an_expired_task_may_be_pruned_unless_its_parent_is_live() -> None:
    ended = after(created(), CLAIM, Cancel("alice"))
    assert ended.expires_at is not None
    assert not may_prune(ended, None, at(0))
    assert may_prune(ended, None, ended.expires_at)
    assert all(may_prune(ended, parent, ended.expires_at) for parent in ENDED)
    assert not any(may_prune(ended, parent, ended.expires_at) for parent in LIVE)


def test_the_parent_is_locked_before_its_child_is_written() -> None:
    ending = change(_running("child", "parent"), Complete(1, encode(1)), 5)
    following = family_steps(ending)
    assert next(following) == ParentLookup(TaskId("parent"))
    assert following.send([]) == ending
