"""Whose turn it is: owners take turns, so that nobody's thousands of queued tasks hold up another's one.

A task gets its turn when it enters the queue, and tasks of one priority are taken in the order of their turns. Think of
them as rounds. In each round, every owner has two places: one for a task that has not begun yet, one for a task that
goes on. An owner's next task of a kind gets its place in the round after their last one. Who has none of that kind
queued gets a place in the round after the one that is served now: not in an earlier one, which would make up for the
time in which they wanted nothing or give them two places in a round, and not in a later one.

Which round is served is remembered, for each line: the highest turn that was ever claimed from it. It can't be told
from what is queued. The lowest turn there forgets who was just served, and stays where it is while a task waits that
nobody can run.

Not every worker runs every tool, so a line may be served further for one tool than for another. A tool of which tasks
still wait from earlier rounds is only as far as the first of them.

So whoever comes to a queue in which another has ten thousand waits for a few places, who asks for one at a time gets as
much as who asks for all at once, and a task that was answered or woken goes on soon, however many new ones of the same
owner are queued. (This is start-time fair queuing, with the same weight for all.)
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, TypeAlias

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import Task, TaskId

Line: TypeAlias = tuple[str, int]
"""A namespace and a priority: what waits for each other."""


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


def next_turn(new: Task, queued: Iterable[tuple[Task, int]], served: int) -> int:
    """The turn of a task that enters the queue.

    These tasks are in it with their turns, and the new one's line has been served up to a turn.
    """
    line = [(task, turn) for task, turn in queued if line_of(task) == line_of(new)]
    same_kind = (turn for task, turn in line if kind_of(task) == kind_of(new))
    same_tool = (turn for task, turn in line if task.tool == new.tool)
    return turn_after(max(same_kind, default=0), min(same_tool, default=served), served)


def line_of(task: Task) -> Line:
    """Tasks for which this is the same wait for each other."""
    return task.namespace, task.priority


def kind_of(task: Task) -> tuple[Owner, bool]:
    """Tasks of a line for which this is the same come one after the other: an owner's new ones, and what goes on."""
    return task.owner, task.fence > 0


def turn_after(last_of_kind: int, first_of_tool: int, served: int) -> int:
    """The turn after the last queued one of the same kind, and after the one that the tool has been served up to."""
    return max(last_of_kind, min(first_of_tool, served)) + 1
