"""Effects of a change beyond its task: on its relatives, and on the order of the queue.

Relatives
=========

Effects of a task's end on its relatives, decided in the transaction that stores the end.

The parent gets a signal: it may be parked until exactly that. It also gets a signal when a child opens an input
request, so that it can relay the request. The children of a task that ended without completing have no consumer left,
so they are cancelled, and their children too. A task that completes leaves its children alone: it chose not to wait for
them.

Nothing here is retried. Relatives are read and changed within one transaction, so they are as they were read.

Lookups and writes belong to the store, synchronous or not: `family_steps` only yields the next step.

Fair queue order
================

Owners take turns, so thousands of tasks of one owner do not hold up a single one of another.

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

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Signal
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import Task, TaskId


@dataclass(frozen=True, slots=True)
class ParentLookup:
    """Request to look up a parent. The answer is one task, or none if it is gone."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class LiveChildrenLookup:
    """Request to look up the live children of a task. The answer is all of them."""

    parent_id: TaskId


FamilyStep: TypeAlias = Change | ParentLookup | LiveChildrenLookup
"""The store's next operation: write a change, or look up relatives."""


class Family(Protocol):
    """Access to tasks within a transaction."""

    def find(self, task_id: TaskId) -> Task | None: ...

    def live_children(self, parent_id: TaskId) -> Iterable[Task]: ...

    def write(self, change: Change) -> None: ...


def write_with_relatives(change: Change, family: Family) -> None:
    """Write the change, and then its effects on relatives."""
    steps = family_steps(change)
    found: Iterable[Task] | None = None
    while (step := advance(steps, found)) is not None:
        match step:
            case Change():
                family.write(step)
                found = None
            case ParentLookup(task_id):
                parent = family.find(task_id)
                found = () if parent is None else (parent,)
            case LiveChildrenLookup(parent_id):
                found = family.live_children(parent_id)


def family_steps(change: Change) -> Generator[FamilyStep, Sequence[Task] | None]:
    """Yield the change, and then its effects on relatives. The consumer sends the result of each lookup."""
    # Breadth-first, one generation after the other, and not by recursion: a tree may be deep.
    waiting = deque([change])
    ended: set[TaskId] = set()
    while waiting:
        change = waiting.popleft()
        is_end = change.after.is_terminal and not change.before.is_terminal
        if not is_end and not any(question.is_open for question in change.inputs):
            yield change
            continue
        if is_end:
            ended.add(change.after.id)
        parent_id = change.after.parent_id
        # Lock the parent before the child, in the order in which a parent's end proceeds: in a store with locks, the
        # two would otherwise deadlock.
        parents = None if parent_id is None or parent_id in ended else (yield ParentLookup(parent_id))
        yield change
        for parent in parents or ():
            signal = signal_parent(change.after, parent)
            if signal is not None:
                yield signal
        if is_end and change.after.phase is not Phase.COMPLETED:
            waiting += cancel_children(change.after, (yield LiveChildrenLookup(change.after.id)) or ())


def advance(steps: Generator[FamilyStep, Sequence[Task] | None], found: Iterable[Task] | None) -> FamilyStep | None:
    """Return the next step, given the result of the lookup before it, if it was one; None at the end."""
    try:
        return steps.send(None if found is None else tuple(found))
    except StopIteration:
        return None


def signal_parent(child: Task, parent: Task) -> Change | None:
    """Return the signal to the parent for a child's end or input request; None if the parent has ended."""
    if parent.is_terminal:
        return None
    event = child.phase if child.is_terminal else "requested input"
    return decide(parent, Signal(actor=child.id, note=f"child {child.id} {event}"), child.updated_at)


def cancel_children(ended: Task, children: Iterable[Task]) -> list[Change]:
    """Return the changes that cancel the live children of a task that ended."""
    if ended.phase is Phase.COMPLETED:
        return []
    outcome = "was cancelled" if ended.phase is Phase.CANCELLED else "failed"
    cancel = Cancel(actor=ended.id, reason=f"its parent {outcome}")
    decided = (decide(child, cancel, ended.updated_at) for child in children if not child.is_terminal)
    return [change for change in decided if change is not None]


def may_prune(task: Task, parent: Task | None, now: datetime, *, early: bool = False) -> bool:
    """Return whether a task can be pruned: it has expired, and no live parent may still have to read its result.

    With `early`, it need only have ended.
    """
    is_over = task.is_terminal if early else task.is_expired(now)
    return is_over and (parent is None or parent.is_terminal)


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
