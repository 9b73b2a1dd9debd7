"""Task documents: a task with everything that belongs to it in one piece, and a collection of them.

For stores that keep a task as one document: the memory store does, and a store on a key-value or document database can.
A store that spreads a task over tables does the same in SQL, and the contract suite checks that the results are the
same.

Queries and counts scan every document. A store with more documents, or with indexes, overrides the queries; the changes
stay the same.
"""

from collections import Counter, UserDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from raincheck.core.change import Change, Creation
from raincheck.core.effects import (
    QueueKey,
    QueuePosition,
    enters_queue,
    may_prune,
    next_turn,
    queue_key,
    write_with_relatives,
)
from raincheck.core.histogram import DurationHistogram, merge_histograms
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import NO_QUOTA, Quota
from raincheck.core.records import Artifact, HistoryEntry, InputRequest, Journal, Lease, Step, Task, TaskId, Tool, View
from raincheck.core.values import Payload
from raincheck.errors import AlreadyRecorded, StaleChange, TaskNotFound
from raincheck.stores.requests import ClaimRequest, check_states_scope


@dataclass(frozen=True, slots=True)
class TaskDocument:
    """Everything that is stored of one task."""

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
    """Its turn in the queue, assigned when it enters the queue; meaningless while it is not queued."""

    @classmethod
    def of(cls, creation: Creation, turn: int = 0) -> Self:
        task, history = creation.task, (creation.entry,)
        return cls(task, creation.arguments, creation.caller, creation.request_digest, history, turn=turn)

    def matches_request(self, creation: Creation, now: datetime) -> bool:
        """Return whether this task, which has the idempotency key, matches the request; false if it has expired.

        Raises:
            IdempotencyConflict: the key was used for a different request.
        """
        return creation.matches(self.task, self.request_digest, now)

    def with_change(self, change: Change) -> Self:
        """Return the document with the change applied.

        Raises:
            StaleChange: the task changed since the change was decided.
            AlreadyRecorded: the change brings a step or an input request that exists already.
        """
        self._check(change)
        steps, inputs = self.steps, self.inputs
        if change.leaves_state:
            steps, inputs = (), tuple(question for question in inputs if question.is_open)
        # Not `replace`, which takes as long as everything else here.
        return type(self)(
            self._with_stored_lease_and_key(change.after),
            self.arguments,
            self.caller,
            self.request_digest,
            self.history if change.entry is None else (*self.history, change.entry),
            outcome=change.outcome,
            variables=self.variables if change.variables is None else change.variables,
            steps=steps + change.steps,
            inputs=_merge_inputs(inputs, change.inputs) if change.inputs else inputs,
            artifacts=_with_latest(self.artifacts, change.artifacts) if change.artifacts else self.artifacts,
            turn=self.turn,
        )

    def with_extended_lease(self, fence: int, until: datetime) -> Self | None:
        """Return the document with a new end of the lease; None if that attempt does not hold the task."""
        attempt = self.task.attempt
        if attempt is None or attempt.number != fence:
            return None
        lease = Lease(attempt.lease.holder, until)
        return replace(self, task=self.task.evolve(attempt=replace(attempt, lease=lease)))

    def without_key(self) -> Self:
        return replace(self, task=self.task.evolve(idempotency_key=None), request_digest=None)

    def with_turn(self, turn: int) -> Self:
        return replace(self, turn=turn)

    def is_visible(self, scope: Scope, now: datetime) -> bool:
        return scope.covers(self.task.namespace, self.task.owner) and not self.task.is_expired(now)

    def view(self) -> View:
        is_open = not self.task.is_terminal
        return View(
            self.task, self.outcome, tuple(question for question in self.inputs if is_open and question.is_open)
        )

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
                raise AlreadyRecorded.input_request(task.id, question.key)

    def _with_stored_lease_and_key(self, after: Task) -> Task:
        """Keep the stored lease and key, which change without a new version.

        The lease of a continuing attempt may have been extended since the change was decided, and the key released.
        """
        if self.task.attempt is not None and after.attempt is not None:
            after = after.evolve(attempt=self.task.attempt)
        if self.task.idempotency_key != after.idempotency_key:
            after = after.evolve(idempotency_key=self.task.idempotency_key)
        return after


def _merge_inputs(inputs: tuple[InputRequest, ...], changes: tuple[InputRequest, ...]) -> tuple[InputRequest, ...]:
    """Return the input requests with the answers and the new requests of a change."""
    answered = {question.key: question for question in changes if not question.is_open}
    added = tuple(question for question in changes if question.is_open)
    return tuple(answered.get(question.key, question) for question in inputs) + added


def _with_latest(artifacts: tuple[Artifact, ...], changes: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    """Return the artifacts sorted by name, each in its latest version."""
    latest = {artifact.name: artifact for artifact in (*artifacts, *changes)}
    return tuple(latest[name] for name in sorted(latest))


class Documents(UserDict[TaskId, TaskDocument]):
    """Documents by id, within a transaction. If an operation raises, the caller must discard its partial changes."""

    def __init__(self, copied: "Documents | None" = None) -> None:
        super().__init__(copied)
        # Replaced and never mutated, so that a copy can share it.
        self.served_turns: Mapping[QueueKey, int] = {} if copied is None else copied.served_turns
        """The turn up to which claims have served each queue. It outlives the tasks that had it."""
        self.durations: Mapping[str, Mapping[str, DurationHistogram]] = {} if copied is None else copied.durations
        """Task durations by namespace and tool. They outlive the tasks too."""
        self.definitions: Mapping[tuple[str, Tool], bytes] = {} if copied is None else copied.definitions
        """Definitions of tools, by namespace."""

    # Queries.

    def get_visible(self, task_id: TaskId, scope: Scope, now: datetime) -> TaskDocument:
        """Return the task that a reader requests.

        Raises:
            TaskNotFound: it does not exist, or this reader may not see it.
        """
        document = self.get(task_id)
        if document is None or not document.is_visible(scope, now):
            raise TaskNotFound(task_id)
        return document

    def tasks(self) -> list[Task]:
        return [document.task for document in self.values()]

    def live(self) -> Iterable[Task]:
        return [task for task in self.tasks() if not task.is_terminal]

    def queued(self) -> Iterable[TaskDocument]:
        return [document for document in self.values() if document.task.phase is Phase.QUEUED]

    def find(self, task_id: TaskId) -> Task | None:
        document = self.get(task_id)
        return None if document is None else document.task

    def live_children(self, parent_id: TaskId) -> Iterable[Task]:
        return [task for task in self.live() if task.parent_id == parent_id]

    def claim_order(self) -> list[Task]:
        """Return the queued tasks in the order in which claims take them."""
        queued = sorted(self.queued(), key=lambda document: QueuePosition.of(document.task, document.turn))
        return [document.task for document in queued]

    def next_turn(self, new: Task) -> int:
        """Return the turn of a task that enters the queue."""
        queued = ((document.task, document.turn) for document in self.queued())
        return next_turn(new, queued, self.served_turns.get(queue_key(new), 0))

    def expired(self, now: datetime) -> Iterable[Task]:
        return [task for task in self.tasks() if task.is_expired(now)]

    def prunable_ids(self, now: datetime, only: Iterable[TaskId] | None = None) -> list[TaskId]:
        """Return the tasks that can be pruned: expired ones or, with `only`, the named ones that have ended."""
        early = only is not None
        found = (
            self.expired(now) if only is None else [self[named].task for named in dict.fromkeys(only) if named in self]
        )
        return [task.id for task in found if may_prune(task, self._parent_of(task), now, early=early)]

    # Changes.

    def create(self, creation: Creation, quota: Quota, now: datetime, claim: ClaimRequest | None = None) -> Task:
        """Return the new task or, where the same request already used its idempotency key, the task that has the key.

        With an offer, an attempt on the new task starts with it, if no other task is overtaken.

        Raises:
            IdempotencyConflict, QuotaExceeded, AlreadyRecorded: it is not created.
        """
        holder = self._holder_of_key(creation.task)
        if holder is not None:
            if holder.matches_request(creation, now):
                return holder.task
            # It has expired, so its key is free.
            del self[holder.task.id]
        started = () if claim is None else claim.decide_direct_start(creation.task, self.live(), now)
        return self._insert(creation, quota, now, started).task

    def commit(self, change: Change) -> Task:
        """Apply the change with its effects on relatives, and return the task as it was decided.

        Raises:
            StaleChange, AlreadyRecorded, QuotaExceeded: the change can't be applied any more.
        """
        write_with_relatives(change, self)
        return change.after

    def commit_claims(self, changes: Sequence[Change]) -> tuple[Task, ...]:
        """Apply the changes of a claim, and record how far it serves their queues."""
        for change in changes:
            self._serve(self[self.commit(change).id])
        return tuple(change.after for change in changes)

    def extend_lease(self, task_id: TaskId, fence: int, until: datetime) -> bool:
        """Set the end of an attempt's lease; false if that attempt does not hold the task."""
        document = self.get(task_id)
        extended = None if document is None else document.with_extended_lease(fence, until)
        if extended is None:
            return False
        self[task_id] = extended
        return True

    def release_key(self, task_id: TaskId, key: str) -> None:
        """Free a task's idempotency key, if it has that key."""
        document = self.get(task_id)
        if document is not None and document.task.idempotency_key == key:
            self[task_id] = document.without_key()

    def prune(self, now: datetime, limit: int, only: Iterable[TaskId] | None = None) -> tuple[TaskId, ...]:
        """Delete up to `limit` of the tasks that can be pruned, and return their ids."""
        pruned = tuple(self.prunable_ids(now, only)[:limit])
        for task_id in pruned:
            del self[task_id]
        return pruned

    def merge_durations(
        self, namespace: str, durations: Mapping[str, DurationHistogram]
    ) -> dict[str, DurationHistogram]:
        """Merge task durations into the stored ones, and return all of the namespace after that."""
        stored = self.durations.get(namespace, {})
        changed = merge_histograms(stored, durations)
        if changed:
            self.durations = {**self.durations, namespace: {**stored, **changed}}
        return {**stored, **changed}

    def save_definitions(self, namespace: str, definitions: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
        """Store definitions of tools, and return those of the tools of live tasks."""
        self.definitions = {**self.definitions, **{(namespace, tool): body for tool, body in definitions.items()}}
        live = {task.tool for task in self.live() if task.namespace == namespace}
        return {tool: self.definitions[namespace, tool] for tool in live if (namespace, tool) in self.definitions}

    def write(self, change: Change) -> None:
        """Apply the change to its task, and create the tasks that it spawns."""
        document = self.get(change.before.id)
        if document is None:
            raise StaleChange(change.before.id)
        changed = document.with_change(change)
        if enters_queue(change.before, change.after):
            changed = changed.with_turn(self.next_turn(change.after))
        self[change.before.id] = changed
        for creation in change.spawned:
            self._insert(creation, change.quota, creation.task.created_at)

    def _serve(self, document: TaskDocument) -> None:
        """Record that this task's attempt has started, so its queue is served up to its turn."""
        key = queue_key(document.task)
        self.served_turns = {**self.served_turns, key: max(self.served_turns.get(key, 0), document.turn)}

    def _insert(self, creation: Creation, quota: Quota, now: datetime, started: Sequence[Change] = ()) -> TaskDocument:
        """Insert a new task, with its first attempt already started if changes are given."""
        new = creation.task
        if quota != NO_QUOTA:
            self._check_quota(new, quota, now)
        if new.id in self:
            raise AlreadyRecorded(new.id)
        document = TaskDocument.of(creation, self.next_turn(new) if enters_queue(None, new) else 0)
        for change in started:
            document = document.with_change(change)
            self._serve(document)
        self[new.id] = document
        return document

    def _check_quota(self, new: Task, quota: Quota, now: datetime) -> None:
        scope = Scope.for_owner(new.namespace, new.owner)
        quota.check([task for task in self.tasks() if scope.covers(task.namespace, task.owner)], now)

    def _parent_of(self, task: Task) -> Task | None:
        return None if task.parent_id is None else self.find(task.parent_id)

    def _holder_of_key(self, new: Task) -> TaskDocument | None:
        if new.idempotency_key is None:
            return None
        scope = Scope.for_owner(new.namespace, new.owner)
        for document in self.values():
            task = document.task
            if task.idempotency_key == new.idempotency_key and scope.covers(task.namespace, task.owner):
                return document
        return None


def count_live(live: Iterable[Task], scope: Scope) -> dict[Phase, int]:
    """Count these tasks by phase."""
    return dict(Counter(task.phase for task in live if _covers(scope, task)))


def count_states(tasks: Iterable[Task], scope: Scope, now: datetime) -> dict[tuple[str, str], int]:
    """Count the instances in each state, by workflow and state.

    Raises:
        InvalidValue: there is no namespace.
    """
    check_states_scope(scope)
    visible = (task for task in tasks if _covers(scope, task) and not task.is_expired(now))
    return dict(Counter((task.tool.name, task.state.name) for task in visible if task.state is not None))


def _covers(scope: Scope, task: Task) -> bool:
    return scope.may_list and scope.covers(task.namespace, task.owner)
