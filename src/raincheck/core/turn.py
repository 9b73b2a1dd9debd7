"""Whose turn it is: owners take turns, so that nobody's thousands of queued tasks hold up another's one.

A task gets its turn when it enters the queue, and tasks of one priority are taken in the order of their turns. Think of
them as rounds. In each round, every owner has two places: one for a task that has not begun yet, one for a task that
goes on. An owner's next task of a kind gets its place in the round after their last one. Who has none of that kind
queued gets a place in the round that is served now: not in an earlier one, which would make up for the time in which
they wanted nothing, and not in a later one.

So whoever comes to a queue in which another has ten thousand waits for a few places, and a task that was answered or
woken goes on soon, however many new ones of the same owner are queued. (This is start-time fair queuing, with the same
weight for all.)
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import Task, TaskId


class Place(NamedTuple):
    """A queued task's place. Places sort in the order in which claims take them."""

    before_priority: int
    """The priority, negated: the higher comes first."""
    turn: int
    created_at: datetime
    task_id: TaskId

    @classmethod
    def of(cls, task: Task, turn: int) -> "Place":
        return cls(-task.priority, turn, task.created_at, task.id)


def enters_queue(before: Task | None, after: Task) -> bool:
    """Whether a change (or a creation, without a before) brings the task to the queue, where it needs a turn."""
    return after.phase is Phase.QUEUED and (before is None or before.phase is not Phase.QUEUED)


def next_turn(new: Task, queued: Iterable[tuple[Task, int]]) -> int:
    """The turn of a task that enters the queue, in which these tasks are with their turns."""
    line = [(kind_of(task), turn) for task, turn in queued if line_of(task) == line_of(new)]
    return turn_after([turn for _, turn in line], [turn for kind, turn in line if kind == kind_of(new)])


def line_of(task: Task) -> tuple[str, int]:
    """Tasks for which this is the same wait for each other."""
    return task.namespace, task.priority


def kind_of(task: Task) -> tuple[Owner, bool]:
    """Tasks of a line for which this is the same come one after the other: an owner's new ones, and what goes on."""
    return task.owner, task.fence > 0


def turn_after(line: Iterable[int], same_kind: Collection[int]) -> int:
    """The turn after those of the same kind or, where there are none, the one that the line is at."""
    return max(same_kind) + 1 if same_kind else min(line, default=0)
