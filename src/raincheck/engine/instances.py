"""Workflow instances: list and take transitions, cancel, and find instances by state."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Command, TakeTransition
from raincheck.core.decide import decide
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import InstanceState, Journal, Task, TaskId
from raincheck.core.values import Json, decode, encode
from raincheck.engine.tool import EngineDeps
from raincheck.engine.workflow import (
    AvailableTransition,
    InstanceSnapshot,
    NotCancellable,
    PlannedTransition,
    StateMachine,
    TransitionClosed,
)
from raincheck.errors import CancelRefused, InvalidValue, TransitionRefused
from raincheck.stores.commit import commit_until_current
from raincheck.stores.requests import Page, PageCursor, TaskQuery

LOCAL_OWNER = Owner.local()


class WorkflowInstances:
    """The workflow instances of one namespace, scoped to their owners.

    With an owner of None, a method covers every owner. This is for programs that do their own authorization.
    """

    def __init__(self, deps: EngineDeps) -> None:
        self._deps = deps

    async def transition(
        self,
        task_id: str,
        action: str,
        *,
        owner: Owner | None = LOCAL_OWNER,
        actor: str = "caller",
        reason: str | None = None,
        data: Mapping[str, Json] | None = None,
    ) -> Task:
        """Take a transition of an instance, in whichever process it runs. `data` is merged into its data.

        Raises:
            TransitionRefused: the workflow does not allow it now. The message says why.
            TaskNotFound, InvalidValue: there is no such instance.
        """

        async def read() -> tuple[Task, Command]:
            journal = await self._read_journal(task_id, owner)
            snapshot, machine = self._load_state_machine(journal)
            if journal.task.is_terminal:
                raise TransitionRefused(task_id, action, snapshot.state, f"it is {journal.task.phase} already")
            try:
                planned = machine.fire(snapshot, action, data, reason)
            except TransitionClosed as closed:
                raise TransitionRefused(task_id, action, snapshot.state, str(closed)) from closed
            return journal.task, transition_command(planned, snapshot, actor)

        return await self._decide_and_commit(read)

    async def cancel(self, task_id: str, owner: Owner, actor: str, reason: str | None) -> Task:
        """Cancel a task. A workflow instance is cancelled as its workflow defines.

        Raises:
            CancelRefused: the workflow does not allow it.
            IllegalTransition: the task, which is not an instance, has already ended.
        """

        async def read() -> tuple[Task, Command]:
            task = await self._deps.store.load(TaskId(task_id), self._scope(owner), now=self._deps.clock.now())
            if task.state is None:
                return task, Cancel(actor, reason)
            # The workflow decides, and needs more than the task record.
            journal = await self._read_journal(task_id, owner)
            return journal.task, self._cancel_of(journal, actor, reason)

        return await self._decide_and_commit(read)

    def _cancel_of(self, journal: Journal, actor: str, reason: str | None) -> Command:
        task = journal.task
        if task.state is not None and task.is_terminal:
            raise CancelRefused(task.id, "already-completed", f"it has ended in state {task.state.name!r}")
        snapshot, machine = self._load_state_machine(journal)
        try:
            planned = machine.cancel(snapshot, reason)
        except NotCancellable as error:
            raise CancelRefused(task.id, error.reason, str(error)) from error
        return transition_command(planned, snapshot, actor)

    async def available_transitions(
        self, task_id: str, *, owner: Owner | None = LOCAL_OWNER
    ) -> Sequence[AvailableTransition]:
        """Return the transitions out of an instance's state, each with the reason if it is closed."""
        journal = await self._read_journal(task_id, owner)
        snapshot, machine = self._load_state_machine(journal)
        return () if journal.task.is_terminal else machine.available(snapshot)

    async def find(
        self,
        workflow: str | None = None,
        *,
        state: str | None = None,
        subject: str | None = None,
        owner: Owner | None = LOCAL_OWNER,
        after: PageCursor | None = None,
        limit: int = 100,
    ) -> Page:
        """Find instances by workflow, state or subject, newest first."""
        query = TaskQuery(self._scope(owner), tool=workflow, state=state, subject=subject)
        return await self._deps.store.list_tasks(query, now=self._deps.clock.now(), after=after, limit=limit)

    async def count_by_state(self, workflow: str, *, owner: Owner | None = LOCAL_OWNER) -> Mapping[str, int]:
        """Count a workflow's instances in each state, including ended ones that are still stored."""
        counts = await self._deps.store.count_states(self._scope(owner), now=self._deps.clock.now())
        return {state: count for (tool, state), count in sorted(counts.items()) if tool == workflow}

    async def _read_journal(self, task_id: str, owner: Owner | None) -> Journal:
        return await self._deps.store.journal(TaskId(task_id), self._scope(owner), now=self._deps.clock.now())

    async def _decide_and_commit(self, read: Callable[[], Awaitable[tuple[Task, Command]]]) -> Task:
        """Commit the command for the task as it was read, and start over if another writer committed first."""

        async def read_and_decide() -> tuple[Task, Change | None]:
            task, command = await read()
            return task, decide(task, command, self._deps.clock.now(), self._deps.settings.limits)

        return await commit_until_current(self._deps.store, read_and_decide, self._deps.on_commit)

    def _load_state_machine(self, journal: Journal) -> tuple[InstanceSnapshot, StateMachine]:
        task = journal.task
        if task.state is None:
            raise InvalidValue(
                f"task {task.id!r} is not a workflow instance: its tool {task.tool.name!r} has no states"
            )
        tool = self._deps.toolbox.find(task.tool)
        if tool is None or tool.state_machine is None:
            raise InvalidValue(
                f"task {task.id!r} is an instance of workflow {task.tool.name!r} in version {task.tool.version!r}, "
                f"which is not served here: use a server that has it, or ask an operator to cancel the task"
            )
        return instance_snapshot(journal, task.state), tool.state_machine

    def _scope(self, owner: Owner | None) -> Scope:
        return self._deps.scope if owner is None else Scope.for_owner(self._deps.namespace, owner)


def instance_snapshot(journal: Journal, state: InstanceState) -> InstanceSnapshot:
    """Return the state and data of an instance, as they were read."""
    data = _mapping({} if journal.variables is None else decode(journal.variables))
    return InstanceSnapshot(state.name, state.number, state.since, _mapping(decode(journal.arguments)), data)


def transition_command(
    planned: PlannedTransition, snapshot: InstanceSnapshot, actor: str, fence: int | None = None
) -> Command:
    """Return the command for a transition.

    An instance that is cancelled ends with its transition. Any other instance ends when the outcome of its body is
    written.
    """
    has_changed = dict(planned.data) != dict(snapshot.data)
    variables = encode(dict(planned.data), what="the data of the instance") if has_changed else None
    into = TakeTransition(
        planned.action, snapshot.state, snapshot.number, planned.to, actor, planned.reason, variables, fence
    )
    return Cancel(actor, planned.reason, into) if planned.kind == "cancel" else into


def _mapping(value: Json) -> Mapping[str, Json]:
    assert isinstance(value, Mapping)  # noqa: S101 - arguments and variables are
    return value
