"""Fair queue order: owners take turns, so thousands of tasks of one owner do not hold up a single one of another.

A task gets its turn when it enters the queue, and tasks of one priority are claimed in the order of their turns. A turn
is a round. In each round, every owner has two positions: one for a task that has not started yet, and one for a task
that resumes. An owner's next task of a kind gets a position in the round after the last one of that kind. An owner with
none of that kind queued gets a position in the round after the one that is served now: not in an earlier one, which
would compensate for the time in which the owner queued nothing or give it two positions in a round, and not in a later
one.

The served round is stored for each queue (a namespace and a priority): the highest turn that was ever claimed from it.
It can't be derived from the queued tasks. The lowest turn there does not show who was just served, and does not advance
while a task waits that no worker can run.

Not every worker runs every tool, so a queue may be served further for one tool than for another. A tool with tasks
still waiting from earlier rounds is only served up to the first of them.

So an owner that joins a queue in which another has ten thousand tasks waits for a few positions, an owner that submits
one task at a time gets as much as one that submits all at once, and a task that was answered or woken resumes soon,
however many new ones of the same owner are queued. (This is start-time fair queuing with equal weights.)
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, TypeAlias

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import Task, TaskId

QueueKey: TypeAlias = tuple[str, int]
"""A namespace and a priority. Tasks with the same key compete with each other."""


class QueuePosition(NamedTuple):
    """The position of a queued task. Positions sort in the order in which claims take them."""

    before_priority: int
    """The negated priority: higher priorities come first."""
    turn: int
    created_at: datetime
    task_id: TaskId

    @classmethod
    def of(cls, task: Task, turn: int) -> "QueuePosition":
        return cls(-task.priority, turn, task.created_at, task.id)


def enters_queue(before: Task | None, after: Task) -> bool:
    """Return whether a change (or a creation, with no `before`) moves the task to the queue, where it needs a turn."""
    return after.phase is Phase.QUEUED and (before is None or before.phase is not Phase.QUEUED)


def next_turn(new: Task, queued: Iterable[tuple[Task, int]], served: int) -> int:
    """Return the turn of a task that enters the queue.

    `queued` are the queued tasks with their turns, and the new task's queue has been served up to the turn `served`.
    """
    competing = [(task, turn) for task, turn in queued if queue_key(task) == queue_key(new)]
    same_kind = (turn for task, turn in competing if turn_group(task) == turn_group(new))
    same_tool = (turn for task, turn in competing if task.tool == new.tool)
    return turn_after(max(same_kind, default=0), min(same_tool, default=served), served)


def queue_key(task: Task) -> QueueKey:
    """Return the key of the queue that a task waits in. Tasks in the same queue wait for each other."""
    return task.namespace, task.priority


def turn_group(task: Task) -> tuple[Owner, bool]:
    """Return the group within a queue whose tasks follow one another: an owner's new tasks, or its resuming ones."""
    return task.owner, task.attempt_number > 0


def turn_after(last_of_kind: int, first_of_tool: int, served: int) -> int:
    """Return the turn after the last queued one of the same kind, and after the one served for the tool."""
    return max(last_of_kind, min(first_of_tool, served)) + 1
