"""Invariants that hold for a store at every moment, even after crashes and races."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

from raincheck.core.lifecycle import INITIAL_PHASES, TRANSITIONS, Event, Phase
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, Journal, Task, TaskId, View
from raincheck.stores.base import Store, iterate_tasks
from raincheck.stores.requests import TaskQuery

EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
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
    violations: list[str] = []
    uncompleted: set[TaskId] = set()
    parents: dict[TaskId, TaskId] = {}
    async for task in iterate_tasks(store, TaskQuery(Scope.everything()), now=EARLIEST):
        history = await _read_history(store, task)
        journal = await store.journal(task.id, Scope.everything(), now=EARLIEST)
        view = await store.view(task.id, Scope.everything(), now=EARLIEST)
        found = [
            *_record_violations(task),
            *_history_violations(task, history),
            *_content_violations(task, journal, view),
        ]
        if task.is_terminal and not _is_unchanged(ended.setdefault(task.id, task), task):
            found.append(f"it changed after its end, from {ended[task.id]} to {task}")
        violations += [f"task {task.id!r} ({task.phase}): {violation}" for violation in found]
        if task.is_terminal and task.phase is not Phase.COMPLETED:
            uncompleted.add(task.id)
        elif not task.is_terminal and task.parent_id is not None:
            parents[task.id] = task.parent_id
    violations += [
        f"task {task_id!r}: it is live, but its parent {parent_id!r} ended without completing"
        for task_id, parent_id in parents.items()
        if parent_id in uncompleted
    ]
    if violations:
        raise InvariantViolation(violations)


def _is_unchanged(ended: Task, task: Task) -> bool:
    """Return whether a terminal task is unchanged, except that its idempotency key may be released."""
    return task in (ended, ended.evolve(idempotency_key=None))


async def _read_history(store: Store, task: Task) -> list[HistoryEntry]:
    entries: list[HistoryEntry] = []
    while True:
        after = entries[-1].seq if entries else 0
        part = await store.history(task.id, Scope.everything(), now=EARLIEST, after=after)
        entries += part
        if not part:
            return entries


def _record_violations(task: Task) -> Iterator[str]:
    if (task.phase is Phase.RUNNING) != (task.attempt is not None):
        yield "it has an attempt and does not run, or runs without an attempt"
    if task.attempt is not None and task.attempt.number != task.attempt_number:
        yield f"attempt {task.attempt.number} runs, but the fence is {task.attempt_number}"
    if task.is_terminal != (task.finished_at is not None) or task.is_terminal != (task.expires_at is not None):
        yield "finished_at and expires_at are set before it ended, or missing after it ended"
    if task.finished_at is not None and task.expires_at is not None and task.expires_at < task.finished_at:
        yield "it expires before it ended"
    if task.due_at is not None and task.phase not in (Phase.PARKED, Phase.PAUSED):
        yield "it has a due time, but is neither parked nor paused"
    if task.pausing and task.phase is not Phase.RUNNING:
        yield "a pause is pending, but it does not run"
    if not task.created_at <= task.updated_at:
        yield "it changed before it was created"
    if task.failures > task.attempt_number:
        yield f"{task.failures} attempts failed, but only {task.attempt_number} started"


def _history_violations(task: Task, history: list[HistoryEntry]) -> Iterator[str]:
    if not history or [entry.seq for entry in history] != list(range(1, task.entries + 1)):
        yield f"its history has a gap: {[entry.seq for entry in history]} of {task.entries} entries"
        return
    first, last = history[0], history[-1]
    if first.event is not Event.CREATE or first.before is not None or first.after not in INITIAL_PHASES:
        yield f"its history starts with {first}"
    if last.after is not task.phase or last.attempt != task.attempt_number:
        yield f"its history ends with {last}"
    if last.at > task.updated_at:
        yield "its history is ahead of its record"
    for before, entry in pairwise(history):
        if entry.before is not before.after:
            yield f"its history is broken at {entry.seq}: it leaves {entry.before}, but the phase was {before.after}"
        elif TRANSITIONS[before.after].get(entry.event) is not entry.after:
            yield f"its history has a transition that the lifecycle does not allow: {entry}"
        if entry.attempt != before.attempt + (entry.event is Event.CLAIM):
            yield f"its fence went from {before.attempt} to {entry.attempt} at {entry.event} ({entry.seq})"
        if entry.at < before.at:
            yield f"its history goes back in time at {entry.seq}"


def _content_violations(task: Task, journal: Journal, view: View) -> Iterator[str]:
    open_keys = {request.key for request in journal.inputs if request.is_open}
    if not task.is_terminal and task.open_inputs != len(open_keys):
        yield f"it counts {task.open_inputs} open input requests, but has {sorted(open_keys)}"
    if {request.key for request in view.inputs} != (set() if task.is_terminal else open_keys):
        yield "its view does not show exactly its open input requests"
    if (view.outcome is not None) != (task.phase in (Phase.COMPLETED, Phase.FAILED)):
        yield "it has an outcome without having completed or failed, or no outcome although it did"
    if any(not 1 <= step.attempt <= task.attempt_number for step in journal.steps):
        yield "a step was recorded by an attempt that does not exist"
