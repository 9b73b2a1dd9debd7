"""Bugs that a simulation must find. Each is planted into the shipped code for the time of a run."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from unittest import mock

from raincheck.core import change, decide, effects, lifecycle
from raincheck.core.change import Change
from raincheck.core.commands import AttemptCommand, Complete, Park
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.policies import Limits
from raincheck.core.records import Lease, Task, TaskId
from raincheck.core.values import Json
from raincheck.engine.execution import context
from raincheck.engine.execution.context import Variables
from raincheck.stores import memory
from raincheck.stores.documents import TaskDocument
from raincheck.stores.memory import IndexedDocuments

Patches = Iterable[tuple[object, str, object]]
"""What to replace: an object, the name of its attribute, and the new value."""


def _unfenced_completion() -> Patches:
    """The fence is not checked on completion: a stale attempt completes the task of its successor."""
    decide_command = decide.decide_attempt_command

    def buggy(task: Task, command: AttemptCommand, now: datetime, limits: Limits) -> Change | None:
        if isinstance(command, Complete) and task.attempt is not None:
            command = replace(command, fence=task.attempt.number)
        return decide_command(task, command, now, limits)

    yield decide, "decide_attempt_command", buggy


def _unfenced_lease() -> Patches:
    """A lease is extended after it was taken over: a stale attempt extends that of its successor."""

    def buggy(document: TaskDocument, fence: int, until: datetime) -> TaskDocument | None:
        attempt = document.task.attempt
        if attempt is None or attempt.number < fence:
            return None
        lease = Lease(attempt.lease.holder, until)
        return replace(document, task=document.task.evolve(attempt=replace(attempt, lease=lease)))

    yield TaskDocument, "with_extended_lease", buggy


def _silent_answer() -> Patches:
    """An answer wakes no parked task."""
    parked: Mapping[Event, Phase] = {**lifecycle.TRANSITIONS[Phase.PARKED], Event.ANSWER: Phase.PARKED}
    table = MappingProxyType({**lifecycle.TRANSITIONS, Phase.PARKED: MappingProxyType(parked)})
    # The invariants have the same table, so that they accept the history.
    from raincheck.testing import invariants

    yield change, "TRANSITIONS", table
    yield invariants, "TRANSITIONS", table


def _missed_child() -> Patches:
    """A child's end is not signalled when its parent parks at the same moment."""
    decide_command, signal_parent = decide.decide_attempt_command, effects.signal_parent
    signalled: dict[TaskId, int] = {}

    def note_end(child: Task, parent: Task) -> Change | None:
        signal = signal_parent(child, parent)
        if signal is not None and child.is_terminal:
            signalled[parent.id] = signal.after.signals
        return signal

    def buggy(task: Task, command: AttemptCommand, now: datetime, limits: Limits) -> Change | None:
        if isinstance(command, Park) and signalled.get(task.id) == task.signals == command.seen_signals + 1:
            command = replace(command, seen_signals=task.signals)
        return decide_command(task, command, now, limits)

    yield decide, "decide_attempt_command", buggy
    yield effects, "signal_parent", note_end


class SilentDocuments(IndexedDocuments):
    """Documents whose feeds learn of every change but an expiry."""

    def _is_changed(self, task_id: TaskId) -> bool:
        return super()._is_changed(task_id) and not _has_expired(self.get(task_id))


def _silent_expiry() -> Patches:
    """Expiry does not wake waiters: the store publishes no change for it."""
    yield memory, "IndexedDocuments", SilentDocuments


def _has_expired(document: TaskDocument | None) -> bool:
    return document is not None and document.history[-1].event is Event.EXPIRE


class UnlockedVariables(Variables):
    """Variables that branches may write at the same time."""

    async def set(self, name: str, value: Json) -> None:
        await self._replace({**self, name: value})


def _lost_variables() -> Patches:
    """Branches that set variables at the same time overwrite each other's."""
    yield context, "Variables", UnlockedVariables


BUGS: Mapping[str, Callable[[], Patches]] = {
    "fence": _unfenced_completion,
    "lease": _unfenced_lease,
    "answer": _silent_answer,
    "child": _missed_child,
    "expiry": _silent_expiry,
    "variables": _lost_variables,
}
"""The bugs by name."""


@contextmanager
def planted(name: str | None) -> Generator[None]:
    """Plant a bug, or none."""
    patches = [] if name is None else [mock.patch.object(*patch) for patch in BUGS[name]()]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
