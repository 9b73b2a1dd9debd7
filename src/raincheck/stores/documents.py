"""All documents of a store, and what rules look for among them. For stores that keep a task whole.

What is looked for is found here by looking at every document. A store with more to look at, or with indexes, overrides
how it is found; what is done with it stays.

A task with everything that belongs to it, in one piece: what changes make of it, and what readers see of it.

For stores that keep a task whole: the memory store does, and so can one on a key-value or document database. A
store that spreads a task over tables does the same in its own language, and the contract suite tells whether it
is the same.

How many tasks there are of a kind, counted one by one. For stores that have no better way.
"""

from collections import Counter, UserDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, Self

from raincheck.core.change import Change, Creation
from raincheck.core.fair_queue import Line, Place, enters_queue, line_of, next_turn
from raincheck.core.family import keep_in_family, may_forget
from raincheck.core.histogram import Sketch, merge_news
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import NO_QUOTA, Quota
from raincheck.core.owner import Scope
from raincheck.core.payload import Payload
from raincheck.core.records import Artifact, HistoryEntry, InputRequest, Journal, Lease, Step, Task, TaskId, Tool, View
from raincheck.errors import AlreadyRecorded, InvalidValue, StaleChange, TaskNotFound


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


class Offer(Protocol):
    """Somebody offers to run a task that is being created."""

    def begin_new(self, new: Task, live: Iterable[Task], now: datetime) -> Sequence[Change]:
        """What begins its attempt; nothing if they can't run it, or if others wait for them."""
        ...


class Documents(UserDict[TaskId, TaskDocument]):
    """Documents by id, within a transaction: if something is raised, what was done so far is for the caller to drop."""

    def __init__(self, copied: "Documents | None" = None) -> None:
        super().__init__(copied)
        # Replaced and never changed, so that a copy can share it.
        self.served: Mapping[Line, int] = {} if copied is None else copied.served
        """The turn up to which claims have served each line. It outlives the tasks that had it."""
        self.durations: Mapping[str, Mapping[str, Sketch]] = {} if copied is None else copied.durations
        """How long tasks take, by namespace and tool. It outlives them too."""
        self.definitions: Mapping[tuple[str, Tool], bytes] = {} if copied is None else copied.definitions
        """What tools are made of, by namespace."""

    # What is looked for.

    def visible(self, task_id: TaskId, scope: Scope, now: datetime) -> TaskDocument:
        """The task that a reader asks for.

        Raises:
            TaskNotFound: it is not there, or not for this reader.
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

    def line(self) -> list[Task]:
        """The queued tasks in the order in which claims take them."""
        queued = sorted(self.queued(), key=lambda document: Place.of(document.task, document.turn))
        return [document.task for document in queued]

    def next_turn(self, new: Task) -> int:
        """The turn of a task that enters the queue."""
        queued = ((document.task, document.turn) for document in self.queued())
        return next_turn(new, queued, self.served.get(line_of(new), 0))

    def expired(self, now: datetime) -> Iterable[Task]:
        return [task for task in self.tasks() if task.is_expired(now)]

    def forgettable(self, now: datetime, only: Iterable[TaskId] | None = None) -> list[TaskId]:
        """The tasks that can be pruned: what has expired or, of those that are named, what has ended."""
        early = only is not None
        found = self.expired(now) if only is None else [self[one].task for one in dict.fromkeys(only) if one in self]
        return [task.id for task in found if may_forget(task, self._parent_of(task), now, early=early)]

    # What is done.

    def create(self, creation: Creation, quota: Quota, now: datetime, offer: Offer | None = None) -> Task:
        """The new task or, where its idempotency key is taken by the same request, the task that has it.

        With an offer, an attempt on the new one is begun with it, if nobody is overtaken.

        Raises:
            IdempotencyConflict, QuotaExceeded, AlreadyRecorded: it is not created.
        """
        holder = self._holder_of_key(creation.task)
        if holder is not None:
            if holder.is_asked_for_by(creation, now):
                return holder.task
            # It has expired, so its key is free.
            del self[holder.task.id]
        begun = () if offer is None else offer.begin_new(creation.task, self.live(), now)
        return self._insert(creation, quota, now, begun).task

    def keep(self, change: Change) -> Task:
        """Do what the change says, with all that it means for others, and return the task as it was decided.

        Raises:
            StaleChange, AlreadyRecorded, QuotaExceeded: it does not hold any more.
        """
        keep_in_family(change, self)
        return change.after

    def take(self, begun: Sequence[Change]) -> tuple[Task, ...]:
        """Keep the attempts that a claim begins, and remember how far that serves their lines."""
        for change in begun:
            self._serve(self[self.keep(change).id])
        return tuple(change.after for change in begun)

    def extend(self, task_id: TaskId, fence: int, until: datetime) -> bool:
        """Let an attempt's lease end at another moment; false if that attempt does not hold the task."""
        document = self.get(task_id)
        extended = None if document is None else document.extended(fence, until)
        if extended is None:
            return False
        self[task_id] = extended
        return True

    def release_key(self, task_id: TaskId, key: str) -> None:
        """Free a task's idempotency key, if that is the one it has."""
        document = self.get(task_id)
        if document is not None and document.task.idempotency_key == key:
            self[task_id] = document.without_key()

    def prune(self, now: datetime, most: int, only: Iterable[TaskId] | None = None) -> tuple[TaskId, ...]:
        """Forget so many of the tasks that can be pruned, and return them."""
        pruned = tuple(self.forgettable(now, only)[:most])
        for task_id in pruned:
            del self[task_id]
        return pruned

    def learn(self, namespace: str, news: Mapping[str, Sketch]) -> dict[str, Sketch]:
        """Merge how long tasks took with what is known, and return all that is known of the namespace then."""
        known = self.durations.get(namespace, {})
        changed = merge_news(known, news)
        if changed:
            self.durations = {**self.durations, namespace: {**known, **changed}}
        return {**known, **changed}

    def remember(self, namespace: str, news: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
        """Keep what tools are made of, and return what those of live tasks are made of."""
        self.definitions = {**self.definitions, **{(namespace, tool): body for tool, body in news.items()}}
        live = {task.tool for task in self.live() if task.namespace == namespace}
        return {tool: self.definitions[namespace, tool] for tool in live if (namespace, tool) in self.definitions}

    def write(self, change: Change) -> None:
        """Do what the change says, and begin the tasks that it spawns."""
        document = self.get(change.before.id)
        if document is None:
            raise StaleChange(change.before.id)
        changed = document.changed_by(change)
        if enters_queue(change.before, change.after):
            changed = changed.at_turn(self.next_turn(change.after))
        self[change.before.id] = changed
        for creation in change.spawned:
            self._insert(creation, change.quota, creation.task.created_at)

    def _serve(self, document: TaskDocument) -> None:
        """Its attempt is begun: so far its line is served."""
        line = line_of(document.task)
        self.served = {**self.served, line: max(self.served.get(line, 0), document.turn)}

    def _insert(self, creation: Creation, quota: Quota, now: datetime, begun: Sequence[Change] = ()) -> TaskDocument:
        """Begin a new task, as it is when its attempt is begun with it."""
        new = creation.task
        if quota != NO_QUOTA:
            self._check_quota(new, quota, now)
        if new.id in self:
            raise AlreadyRecorded(new.id)
        document = TaskDocument.of(creation, self.next_turn(new) if enters_queue(None, new) else 0)
        for change in begun:
            document = document.changed_by(change)
            self._serve(document)
        self[new.id] = document
        return document

    def _check_quota(self, new: Task, quota: Quota, now: datetime) -> None:
        whose = Scope.of(new.namespace, new.owner)
        quota.check([task for task in self.tasks() if whose.covers(task.namespace, task.owner)], now)

    def _parent_of(self, task: Task) -> Task | None:
        return None if task.parent_id is None else self.find(task.parent_id)

    def _holder_of_key(self, new: Task) -> TaskDocument | None:
        if new.idempotency_key is None:
            return None
        whose = Scope.of(new.namespace, new.owner)
        for document in self.values():
            task = document.task
            if task.idempotency_key == new.idempotency_key and whose.covers(task.namespace, task.owner):
                return document
        return None


def count_live(live: Iterable[Task], scope: Scope) -> dict[Phase, int]:
    """How many of these are in each phase."""
    return dict(Counter(task.phase for task in live if _covers(scope, task)))


def count_states(tasks: Iterable[Task], scope: Scope, now: datetime) -> dict[tuple[str, str], int]:
    """How many processes are in each state, by workflow and state.

    Raises:
        InvalidValue: there is no namespace.
    """
    check_states_scope(scope)
    processes = (task for task in tasks if _covers(scope, task) and not task.is_expired(now))
    return dict(Counter((one.tool.name, one.state.name) for one in processes if one.state is not None))


def check_states_scope(scope: Scope) -> None:
    """Refuse to count states over all namespaces: a workflow of one is none of another.

    Raises:
        InvalidValue: there is no namespace.
    """
    if scope.namespace is None:
        raise InvalidValue("processes are counted within one namespace: name it")


def _covers(scope: Scope, task: Task) -> bool:
    return scope.may_list and scope.covers(task.namespace, task.owner)
