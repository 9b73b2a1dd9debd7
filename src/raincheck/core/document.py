"""A task with everything that belongs to it, in one piece: what changes make of it, and what readers see of it.

For stores that keep a task whole: the memory store does, and so can one on a key-value or document database. A
store that spreads a task over tables does the same in its own language, and the contract suite tells whether it
is the same.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from raincheck.core.change import Change, Creation
from raincheck.core.content import Artifact, InputRequest, Journal, Step, View
from raincheck.core.owner import Scope
from raincheck.core.payload import Payload
from raincheck.core.records import HistoryEntry, Lease, Task
from raincheck.errors import AlreadyRecorded, StaleChange


@dataclass(frozen=True, slots=True)
class TaskDocument:
    """All that is kept of one task."""

    task: Task
    arguments: Payload
    caller: Payload | None
    request_digest: str | None
    history: tuple[HistoryEntry, ...]
    outcome: Payload | None = None
    variables: Payload | None = None
    steps: tuple[Step, ...] = ()
    inputs: tuple[InputRequest, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    turn: int = 0
    """Its place in the queue, given when it enters it; without meaning while it is not queued."""

    @classmethod
    def of(cls, creation: Creation, turn: int = 0) -> Self:
        task, history = creation.task, (creation.entry,)
        return cls(task, creation.arguments, creation.caller, creation.request_digest, history, turn=turn)

    def is_asked_for_by(self, creation: Creation, now: datetime) -> bool:
        """Whether this task, which has the idempotency key, is what the request wants; false if it has expired.

        Raises:
            IdempotencyConflict: the key was used for something else.
        """
        return creation.asks_for(self.task, self.request_digest, now)

    def changed_by(self, change: Change) -> Self:
        """What the change makes of it.

        Raises:
            StaleChange: it was decided on something that is no longer so.
            AlreadyRecorded: it brings a step or a question that is there already.
        """
        self._check(change)
        steps, inputs = self.steps, self.inputs
        if change.leaves_state:
            steps, inputs = (), tuple(question for question in inputs if question.is_open)
        # Not `replace`, which takes as long as all the rest.
        return type(self)(
            self._with_what_is_stored(change.after),
            self.arguments,
            self.caller,
            self.request_digest,
            self.history if change.entry is None else (*self.history, change.entry),
            outcome=change.outcome,
            variables=self.variables if change.variables is None else change.variables,
            steps=steps + change.steps,
            inputs=_with_news(inputs, change.inputs) if change.inputs else inputs,
            artifacts=_with_latest(self.artifacts, change.artifacts) if change.artifacts else self.artifacts,
            turn=self.turn,
        )

    def extended(self, fence: int, until: datetime) -> Self | None:
        """With a lease that ends at another moment; None if that attempt does not hold the task."""
        attempt = self.task.attempt
        if attempt is None or attempt.number != fence:
            return None
        lease = Lease(attempt.lease.holder, until)
        return replace(self, task=self.task.evolve(attempt=replace(attempt, lease=lease)))

    def without_key(self) -> Self:
        return replace(self, task=self.task.evolve(idempotency_key=None), request_digest=None)

    def at_turn(self, turn: int) -> Self:
        return replace(self, turn=turn)

    def is_visible(self, scope: Scope, now: datetime) -> bool:
        return scope.covers(self.task.namespace, self.task.owner) and not self.task.is_expired(now)

    def view(self) -> View:
        is_open = not self.task.is_terminal
        return View(self.task, self.outcome, tuple(one for one in self.inputs if is_open and one.is_open))

    def journal(self) -> Journal:
        names = tuple(artifact.name for artifact in self.artifacts)
        return Journal(self.task, self.arguments, self.caller, self.variables, self.steps, self.inputs, names)

    def _check(self, change: Change) -> None:
        task, attempt = self.task, self.task.attempt
        if task.version != change.before.version:
            raise StaleChange(task.id)
        if change.lease_seen is not None and (attempt is None or attempt.lease.expires_at != change.lease_seen):
            raise StaleChange(task.id)
        steps = {(step.name, step.occurrence) for step in self.steps} if change.steps else set[tuple[str, int]]()
        for step in change.steps:
            if (step.name, step.occurrence) in steps:
                raise AlreadyRecorded.step(task.id, step.name, step.occurrence)
        keys = {question.key for question in self.inputs} if change.inputs else set[str]()
        for question in change.inputs:
            if question.is_open and question.key in keys:
                raise AlreadyRecorded.question(task.id, question.key)

    def _with_what_is_stored(self, after: Task) -> Task:
        """What no version tells of stays as it is stored, and not as it was when the change was decided.

        The lease of an attempt that goes on may have been extended since, and the key released.
        """
        if self.task.attempt is not None and after.attempt is not None:
            after = after.evolve(attempt=self.task.attempt)
        if self.task.idempotency_key != after.idempotency_key:
            after = after.evolve(idempotency_key=self.task.idempotency_key)
        return after


def _with_news(inputs: tuple[InputRequest, ...], news: tuple[InputRequest, ...]) -> tuple[InputRequest, ...]:
    """With the answers and the new questions that a change brings."""
    answered = {question.key: question for question in news if not question.is_open}
    asked = tuple(question for question in news if question.is_open)
    return tuple(answered.get(question.key, question) for question in inputs) + asked


def _with_latest(artifacts: tuple[Artifact, ...], news: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    """By name, each as it was kept last."""
    kept = {artifact.name: artifact for artifact in (*artifacts, *news)}
    return tuple(kept[name] for name in sorted(kept))
