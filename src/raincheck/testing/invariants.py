"""Invariants that hold for a store at every moment, even after crashes and races."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import pairwise

from raincheck.core.lifecycle import INITIAL_PHASES, TRANSITIONS, Event, Phase
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, Journal, Task, TaskId, View
from raincheck.stores.base import Store
from raincheck.stores.requests import TaskQuery

BEGINNING = datetime(1970, 1, 2, tzinfo=UTC)
"""A time before all records, at which nothing has expired, so that every task is read."""


class InvariantViolation(AssertionError):
    """All violations found in a store, one line each."""

    def __init__(self, violations: list[str]) -> None:
        super().__init__("\n".join(violations))
        self.violations = violations


async def check_invariants(store: Store, ended: dict[TaskId, Task] | None = None) -> None:
    """Read the whole store and check that it is consistent.

    With `ended`, a dictionary that the caller passes to every call, it also checks that terminal tasks never change.

    Raises:
        InvariantViolation: with all violations that were found.
    """
    ended = {} if ended is None else ended
    faults: list[str] = []
    broken_off: set[TaskId] = set()
    parents: dict[TaskId, TaskId] = {}
    async for task in _all_tasks(store):
        history = await _whole_history(store, task)
        journal = await store.journal(task.id, Scope.everything(), now=BEGINNING)
        view = await store.view(task.id, Scope.everything(), now=BEGINNING)
        found = [*_record_faults(task), *_history_faults(task, history), *_content_faults(task, journal, view)]
        if task.is_terminal and not _may_have_become(ended.setdefault(task.id, task), task):
            found.append(f"it changed after its end, from {ended[task.id]} to {task}")
        faults += [f"task {task.id!r} ({task.phase}): {fault}" for fault in found]
        if task.is_terminal and task.phase is not Phase.COMPLETED:
            broken_off.add(task.id)
        elif not task.is_terminal and task.parent_id is not None:
            parents[task.id] = task.parent_id
    faults += [
        f"task {task_id!r}: it lives, and its parent {parent_id!r} ended without completing"
        for task_id, parent_id in parents.items()
        if parent_id in broken_off
    ]
    if faults:
        raise InvariantViolation(faults)


def _may_have_become(ended: Task, task: Task) -> bool:
    """Return whether a terminal task is unchanged, except that its idempotency key may be released."""
    return task in (ended, ended.evolve(idempotency_key=None))


async def _all_tasks(store: Store) -> AsyncIterator[Task]:
    position = None
    while True:
        page = await store.list_tasks(TaskQuery(Scope.everything()), now=BEGINNING, after=position, limit=500)
        for task in page.tasks:
            yield task
        position = page.next
        if position is None:
            return


async def _whole_history(store: Store, task: Task) -> list[HistoryEntry]:
    entries: list[HistoryEntry] = []
    while True:
        after = entries[-1].seq if entries else 0
        part = await store.history(task.id, Scope.everything(), now=BEGINNING, after=after)
        entries += part
        if not part:
            return entries


def _record_faults(task: Task) -> Iterator[str]:
    if (task.phase is Phase.RUNNING) != (task.attempt is not None):
        yield "an attempt is there exactly while the task runs"
    if task.attempt is not None and task.attempt.number != task.attempt_number:
        yield f"attempt {task.attempt.number} runs, and the fence is {task.attempt_number}"
    if task.is_terminal != (task.finished_at is not None) or task.is_terminal != (task.expires_at is not None):
        yield "the times of its end and its expiry are there exactly when it has ended"
    if task.finished_at is not None and task.expires_at is not None and task.expires_at < task.finished_at:
        yield "it expires before it ended"
    if task.due_at is not None and task.phase not in (Phase.PARKED, Phase.PAUSED):
        yield "it is due, and does not wait"
    if task.pausing and task.phase is not Phase.RUNNING:
        yield "it is to be paused, and does not run"
    if not task.created_at <= task.updated_at:
        yield "it changed before it was created"
    if task.failures > task.attempt_number:
        yield f"{task.failures} attempts went wrong, and only {task.attempt_number} began"


def _history_faults(task: Task, history: list[HistoryEntry]) -> Iterator[str]:
    if not history or [entry.seq for entry in history] != list(range(1, task.entries + 1)):
        yield f"its history has a gap: {[entry.seq for entry in history]} of {task.entries} entries"
        return
    first, last = history[0], history[-1]
    if first.event is not Event.CREATE or first.before is not None or first.after not in INITIAL_PHASES:
        yield f"its history begins with {first}"
    if last.after is not task.phase or last.attempt != task.attempt_number:
        yield f"its history ends with {last}"
    if last.at > task.updated_at:
        yield "its history is ahead of its record"
    for before, entry in pairwise(history):
        if entry.before is not before.after:
            yield f"its history is broken at {entry.seq}: {before.after} before, then from {entry.before}"
        elif TRANSITIONS[before.after].get(entry.event) is not entry.after:
            yield f"its history has what the lifecycle does not allow: {entry}"
        if entry.attempt != before.attempt + (entry.event is Event.CLAIM):
            yield f"its fence went from {before.attempt} to {entry.attempt} at {entry.event} ({entry.seq})"
        if entry.at < before.at:
            yield f"its history goes back in time at {entry.seq}"


def _content_faults(task: Task, journal: Journal, view: View) -> Iterator[str]:
    open_keys = {question.key for question in journal.inputs if question.is_open}
    if not task.is_terminal and task.open_inputs != len(open_keys):
        yield f"it counts {task.open_inputs} open questions, and has {sorted(open_keys)}"
    if {question.key for question in view.inputs} != (set() if task.is_terminal else open_keys):
        yield "what a poll shows of its questions is not what is open"
    if (view.outcome is not None) != (task.phase in (Phase.COMPLETED, Phase.FAILED)):
        yield "an outcome is there exactly when it completed or failed"
    if any(not 1 <= step.attempt <= task.attempt_number for step in journal.steps):
        yield "a step was finished by an attempt that never was"
