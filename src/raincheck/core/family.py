"""Effects of a task's end on its relatives, decided in the transaction that stores the end.

The parent gets a signal: it may be parked until exactly that. It also gets a signal when a child opens an input
request, so that it can relay the request. The children of a task that ended without completing have no consumer left,
so they are cancelled, and their children too. A task that completes leaves its children alone: it chose not to wait for
them.

Nothing here is retried. Relatives are read and changed within one transaction, so they are as they were read.

Lookups and writes belong to the store, synchronous or not: `family_steps` only yields the next step.
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
