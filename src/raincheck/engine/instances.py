"""Processes as seen from outside: what can be done with one, doing it, and finding those in a state."""

from collections.abc import Callable, Mapping, Sequence

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Command, Transition
from raincheck.core.decide import decide
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import Json, decode, encode
from raincheck.core.records import Journal, State, Task, TaskId
from raincheck.engine.submit import Means
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.workflow import Available, Closed, Fired, NotCancellable, Process, Situation
from raincheck.errors import CancelRefused, InvalidValue, TransitionRefused
from raincheck.stores.commit import keep
from raincheck.stores.requests import Page, Position, TaskQuery

ME = Owner.local()


class Processes:
    """The processes of one namespace, as their owners see them.

    Where the owner is None, whoever's they are: for programs that decide themselves who may do what.
    """

    def __init__(self, means: Means, namespace: str, toolbox: Toolbox) -> None:
        self._means = means
        self._namespace = namespace
        self._toolbox = toolbox

    async def transition(
        self,
        task_id: str,
        action: str,
        *,
        owner: Owner | None = ME,
        actor: str = "caller",
        reason: str | None = None,
        data: Mapping[str, Json] | None = None,
    ) -> Task:
        """Take a process along one of its transitions, whatever process of the machine it runs in. `data` is added.

        Raises:
            TransitionRefused: its workflow does not allow that now. It says why.
            TaskNotFound, InvalidValue: there is no such process.
        """

        def ask(journal: Journal) -> Command:
            situation, process = self._look(journal)
            if journal.task.is_terminal:
                raise TransitionRefused(task_id, action, situation.state, f"it is {journal.task.phase} already")
            try:
                fired = process.fire(situation, action, data, reason)
            except Closed as closed:
                raise TransitionRefused(task_id, action, situation.state, str(closed)) from closed
            return command_of(fired, situation, actor)

        return await self._steer(task_id, owner, ask)

    async def cancel(self, task_id: str, owner: Owner, actor: str, reason: str | None) -> Task:
        """Cancel a task. One that is a process is cancelled as its workflow says.

        Raises:
            CancelRefused: the workflow does not allow it.
            IllegalTransition: the task, which is no process, has ended already.
        """
        store, limits, scope = self._means.store, self._means.limits, self._scope(owner)

        async def read_and_decide() -> tuple[Task, Change | None]:
            now = self._means.clock.now()
            task, command = await store.load(TaskId(task_id), scope, now=now), Cancel(actor, reason)
            if task.state is not None:
                # Its workflow is asked, which goes by more than the record.
                journal = await store.journal(TaskId(task_id), scope, now=now)
                task, command = journal.task, self._cancel_of(journal, actor, reason)
            return task, decide(task, command, now, limits)

        return await keep(store, read_and_decide)

    def _cancel_of(self, journal: Journal, actor: str, reason: str | None) -> Command:
        task = journal.task
        if task.state is not None and task.is_terminal:
            raise CancelRefused(task.id, "already-completed", f"it has ended in state {task.state.name!r}")
        situation, process = self._look(journal)
        try:
            fired = process.cancel(situation, reason)
        except NotCancellable as no:
            raise CancelRefused(task.id, no.reason, str(no)) from no
        return command_of(fired, situation, actor)

    async def available(self, task_id: str, *, owner: Owner | None = ME) -> Sequence[Available]:
        """The transitions out of the state that a process is in, each with the reason if it is closed."""
        now = self._means.clock.now()
        journal = await self._means.store.journal(TaskId(task_id), self._scope(owner), now=now)
        situation, process = self._look(journal)
        return () if journal.task.is_terminal else process.available(situation)

    async def find(
        self,
        workflow: str | None = None,
        *,
        state: str | None = None,
        subject: str | None = None,
        owner: Owner | None = ME,
        after: Position | None = None,
        limit: int = 100,
    ) -> Page:
        """Processes in a state of a workflow, or about something, newest first."""
        query = TaskQuery(self._scope(owner), tool=workflow, state=state, subject=subject)
        return await self._means.store.list_tasks(query, now=self._means.clock.now(), after=after, limit=limit)

    async def statistics(self, workflow: str, *, owner: Owner | None = ME) -> Mapping[str, int]:
        """How many processes of a workflow are in each state, ended ones too while they are kept."""
        counts = await self._means.store.count_states(self._scope(owner), now=self._means.clock.now())
        return {state: count for (tool, state), count in sorted(counts.items()) if tool == workflow}

    async def _steer(self, task_id: str, owner: Owner | None, ask: Callable[[Journal], Command]) -> Task:
        store, limits, scope = self._means.store, self._means.limits, self._scope(owner)

        async def read_and_decide() -> tuple[Task, Change | None]:
            now = self._means.clock.now()
            journal = await store.journal(TaskId(task_id), scope, now=now)
            return journal.task, decide(journal.task, ask(journal), now, limits)

        return await keep(store, read_and_decide)

    def _look(self, journal: Journal) -> tuple[Situation, Process]:
        task = journal.task
        if task.state is None:
            raise InvalidValue(f"task {task.id!r} is no process: its tool {task.tool.name!r} has no states")
        tool = self._toolbox.find(task.tool)
        if tool is None or tool.process is None:
            raise InvalidValue(
                f"task {task.id!r} is a process of workflow {task.tool.name!r} in version {task.tool.version!r}, which "
                f"is not served here: ask a server that has it, or have an operator cancel the task"
            )
        return situation_of(journal, task.state), tool.process

    def _scope(self, owner: Owner | None) -> Scope:
        return Scope.within(self._namespace) if owner is None else Scope.of(self._namespace, owner)


def situation_of(journal: Journal, state: State) -> Situation:
    """Where the process is, as it was read."""
    data = _mapping({} if journal.variables is None else decode(journal.variables))
    return Situation(state.name, state.number, state.since, _mapping(decode(journal.arguments)), data)


def command_of(fired: Fired, situation: Situation, actor: str, fence: int | None = None) -> Command:
    """What does it. A process that is cancelled ends with its transition; others when what comes of them is written."""
    is_new = dict(fired.data) != dict(situation.data)
    variables = encode(dict(fired.data), what="the data of the process") if is_new else None
    into = Transition(fired.action, situation.state, situation.number, fired.to, actor, fired.reason, variables, fence)
    return Cancel(actor, fired.reason, into) if fired.kind == "cancel" else into


def _mapping(value: Json) -> Mapping[str, Json]:
    assert isinstance(value, Mapping)  # noqa: S101 - arguments and variables are
    return value
