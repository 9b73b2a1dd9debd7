"""What the end of a task means for its relatives, decided in the transaction that keeps the end.

A parent hears of it: it may be parked until just that. It also hears that a child asks something, which it asks in
turn. The children of a task that ended without completing have nobody left to work for, and are cancelled, and theirs
too. A task that completes leaves its children alone: it chose not to wait for them.

Nothing here is retried. Relatives are looked up and changed within one transaction, so they are as they were read.

How a store looks and writes is its own affair, at once or with waiting: `follow` only says what is next.
"""

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Signal
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task, TaskId


@dataclass(frozen=True, slots=True)
class Parent:
    """Look for a parent. The answer is one task, or none if it is gone."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class LiveChildren:
    """Look for the children of a task that have not ended. The answer is all of them."""

    parent_id: TaskId


Next: TypeAlias = Change | Parent | LiveChildren
"""What a store has to do next: keep a change, or look for relatives."""


class Family(Protocol):
    """Tasks, as they are within a transaction."""

    def find(self, task_id: TaskId) -> Task | None: ...

    def live_children(self, parent_id: TaskId) -> Iterable[Task]: ...

    def write(self, change: Change) -> None: ...


def keep_in_family(change: Change, family: Family) -> None:
    """Keep the change, and then what it means for relatives."""
    following = follow(change)
    found: Iterable[Task] | None = None
    while (step := advance(following, found)) is not None:
        match step:
            case Change():
                family.write(step)
                found = None
            case Parent(task_id):
                parent = family.find(task_id)
                found = () if parent is None else (parent,)
            case LiveChildren(parent_id):
                found = family.live_children(parent_id)


def follow(change: Change) -> Generator[Next, Sequence[Task] | None]:
    """What keeps the change, and then what it means for relatives. Whoever goes through it sends what was found."""
    # In the order of the tree, one generation after the other, and not by recursion: a tree may be deep.
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
        # The parent before the child, as a parent's end goes about it: in a store with locks, the two would else wait
        # for each other.
        parents = None if parent_id is None or parent_id in ended else (yield Parent(parent_id))
        yield change
        for parent in parents or ():
            signal = to_parent(change.after, parent)
            if signal is not None:
                yield signal
        if is_end and change.after.phase is not Phase.COMPLETED:
            waiting += to_children(change.after, (yield LiveChildren(change.after.id)) or ())


def advance(following: Generator[Next, Sequence[Task] | None], found: Iterable[Task] | None) -> Next | None:
    """What is next, given what the step before it found, if it looked for something; None if that was all."""
    try:
        return following.send(None if found is None else tuple(found))
    except StopIteration:
        return None


def to_parent(child: Task, parent: Task) -> Change | None:
    """What a task's end, or a question of it, means for its parent; None if that has ended."""
    if parent.is_terminal:
        return None
    what = child.phase if child.is_terminal else "asks"
    return decide(parent, Signal(actor=child.id, note=f"child {child.id} {what}"), child.updated_at)


def to_children(ended: Task, children: Iterable[Task]) -> list[Change]:
    """What a task's end means for its live children."""
    if ended.phase is Phase.COMPLETED:
        return []
    how = "was cancelled" if ended.phase is Phase.CANCELLED else "failed"
    cancel = Cancel(actor=ended.id, reason=f"its parent {how}")
    decided = (decide(child, cancel, ended.updated_at) for child in children if not child.is_terminal)
    return [change for change in decided if change is not None]


def may_forget(task: Task, parent: Task | None, now: datetime, *, early: bool = False) -> bool:
    """Whether a task can be pruned: it has expired, and no living parent may still have to read its result.

    Early, it need only have ended.
    """
    is_over = task.is_terminal if early else task.is_expired(now)
    return is_over and (parent is None or parent.is_terminal)
