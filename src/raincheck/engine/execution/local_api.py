"""The task API of attempts in this process: records steps, progress, input requests and children.

`StateMachineApi` serves the bodies of workflow instances: it reads the state, takes transitions, and waits until
another caller takes one.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from raincheck.core.change import Creation
from raincheck.core.commands import Cancel, Note
from raincheck.core.owner import Scope
from raincheck.core.payload import Json, decode, encode
from raincheck.core.records import Artifact, InputKind, InputRequest, Step, TaskId
from raincheck.engine.execution.api import StepStart, TaskOutcome
from raincheck.engine.execution.checkpoints import Checkpoints, fingerprint
from raincheck.engine.execution.children import ChildTasks, InputRelay
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.parking import ParkingPolicy
from raincheck.engine.execution.progress import ProgressReporter
from raincheck.engine.execution.session import AttemptSession
from raincheck.engine.inputs import check_capability, unwrap_answer
from raincheck.engine.instances import instance_snapshot, transition_command
from raincheck.engine.workflow import InstanceSnapshot, PlannedTransition
from raincheck.errors import ConfigurationError, IllegalTransition, InvalidValue, TaskNotFound, TooLarge, WrongState
from raincheck.stores.commit import apply

MAX_SLEEP = timedelta(days=3_650)


class LocalTaskApi:
    """The task API of one attempt. Lives in the event loop."""

    def __init__(
        self,
        session: AttemptSession,
        checkpoints: Checkpoints,
        progress: ProgressReporter,
        parking: ParkingPolicy,
        children: ChildTasks,
    ) -> None:
        self.session = session
        self.checkpoints = checkpoints
        self.progress = progress
        self.parking = parking
        self._children = children
        self.input_relay = InputRelay(session)
        self._loop = asyncio.get_running_loop()
        self._artifacts = set(session.journal.artifacts)

    @cached_property
    def _limit_lock(self) -> asyncio.Lock:
        """Held from the count to the write, so that concurrent branches can't exceed a limit together."""
        return asyncio.Lock()

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        await self.session.raise_if_stopped()
        # Reports that an earlier attempt already made are not repeated.
        if not self.checkpoints.is_replaying:
            self.progress.record(done, total, message)
        # A body that only reports still yields to other tasks.
        await asyncio.sleep(0)

    async def begin_step(self, name: str, fingerprint: str) -> StepStart:
        await self.parking.checkpoint()
        name = self.checkpoints.scoped(name)
        occurrence = self.checkpoints.next_occurrence(name)
        step = self.checkpoints.find_step(name, occurrence, fingerprint)
        if step is not None:
            return StepStart(occurrence, is_recorded=True, result=decode(step.result))
        self.parking.begin_step(name, occurrence)
        return StepStart(occurrence)

    async def finish_step(self, name: str, start: StepStart, fingerprint: str, result: Json) -> None:
        name = self.checkpoints.scoped(name)
        try:
            await self._record(name, start.occurrence, fingerprint, result)
        finally:
            self.parking.end_step(name, start.occurrence)

    def drop_step(self, name: str, occurrence: int) -> None:
        self._loop.call_soon_threadsafe(self.parking.end_step, self.checkpoints.scoped(name), occurrence)

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        await self.parking.checkpoint()
        check_capability(self.session.journal.caller, kind, request)
        name = self.checkpoints.scoped(name)
        key = f"{name}-{self.checkpoints.next_occurrence(name)}"
        if self.checkpoints.find_input(key, kind, request) is None:
            input_request = InputRequest(
                key, kind, encode(request, what=f"question {key!r}"), self._now(), self.session.fence
            )
            # With the pending progress: the user who is asked reads the task now.
            progress = self.progress.take_pending()
            try:
                await self._note(Note(self.session.fence, *progress, input_requests=(input_request,)))
            except BaseException:
                self.progress.restore_pending(*progress)
                raise
        answer = await self.parking.wait_for(lambda: self.session.journal.answer_to(key))
        return None if answer is None else unwrap_answer(decode(answer))

    async def withdraw_input(self, name: str) -> None:
        """Withdraw the input request of this name, which no other request has, if it is still open."""
        await self.parking.checkpoint()
        await self.parking.run_busy(self.input_relay.close_input(f"{self.checkpoints.scoped(name)}-0"))

    async def sleep(self, seconds: float, name: str | None) -> None:
        await self.parking.checkpoint()
        if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SLEEP.total_seconds():  # pyright: ignore[reportUnnecessaryIsInstance] - not every body is type-checked
            raise InvalidValue(f"a task can sleep from 0 to {MAX_SLEEP.total_seconds():.0f} seconds, not {seconds!r}")
        # An unnamed sleep is matched by its length, so that concurrent branches each find their own, unless they sleep
        # equally long.
        name = self.checkpoints.scoped(f"sleep {_format_seconds(seconds) if name is None else name}")
        step_fingerprint = fingerprint("sleep", seconds)
        occurrence = self.checkpoints.next_occurrence(name)
        step = self.checkpoints.find_step(name, occurrence, step_fingerprint)
        if step is None:
            until = self._now() + timedelta(seconds=seconds)
            await self._record(name, occurrence, step_fingerprint, until.isoformat())
        else:
            until = datetime.fromisoformat(str(decode(step.result)))
        await self.parking.wait_for(lambda: None, until)

    async def set_variables(self, variables: Mapping[str, Json]) -> None:
        await self.parking.checkpoint()
        if self.session.task.state is not None:
            raise InvalidValue(
                f"task {self.session.task.id!r} is a workflow instance, whose data changes only with its "
                f"transitions: let the action return Next(…, data)"
            )
        await self._note(Note(self.session.fence, variables=encode(variables, what="variables")))

    async def store_artifact(self, name: str, content: Json) -> None:
        await self.parking.checkpoint()
        max_count = self.session.deps.limits.artifacts
        async with self._limit_lock:
            if name not in self._artifacts and len(self._artifacts) >= max_count:
                raise TooLarge(f"task {self.session.task.id!r}", len(self._artifacts) + 1, max_count, "artifacts")
            artifact = Artifact(name, encode(content, what=f"artifact {name!r}"), self._now())
            await self._note(Note(self.session.fence, artifacts=(artifact,)))
            self._artifacts.add(name)

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        await self.parking.checkpoint()
        step_fingerprint = fingerprint("spawn", tool, arguments)
        # As above.
        name = self.checkpoints.scoped(f"spawn {tool} {step_fingerprint[-8:]}" if name is None else f"spawn {name}")
        occurrence = self.checkpoints.next_occurrence(name)
        step = self.checkpoints.find_step(name, occurrence, step_fingerprint)
        if step is not None:
            return str(decode(step.result))
        async with self._limit_lock:
            creating = self._children.create_child(tool, arguments, self.checkpoints.count("spawn"))
            child = await self.parking.run_busy(creating)
            await self._store_step(name, occurrence, step_fingerprint, child.task.id, spawned=(child,))
        return child.task.id

    async def child_outcome(self, child_id: str) -> TaskOutcome:
        await self.parking.checkpoint()
        while True:
            # Read before the child, so that a child that ends in between is not waited for in vain.
            signals = self.session.journal.task.signals
            child = await self.parking.run_busy(self._children.view_child(child_id))
            if child.task.is_terminal:
                await self.parking.run_busy(self.input_relay.withdraw(child.task.id))
                return self._children.child_outcome(child)
            await self.parking.run_busy(self.input_relay.relay(child))
            await self.parking.wait_for(lambda signals=signals: self._has_new_signal(signals))

    async def cancel_child(self, child_id: str) -> None:
        """Cancel a child whose result is no longer needed."""
        deps, task = self.session.deps, self.session.task
        cancel = Cancel(actor=f"task {task.id}", reason="its parent no longer needs it")
        with suppress(IllegalTransition, TaskNotFound):
            scope = Scope.for_namespace(task.namespace)
            await apply(deps.store, TaskId(child_id), scope, cancel, now=deps.clock.now())

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        await self.parking.checkpoint()
        return self._children.set_successor(tool, arguments, result_as)

    async def _record(self, name: str, occurrence: int, step_fingerprint: str, result: Json) -> None:
        async with self._limit_lock:
            await self._store_step(name, occurrence, step_fingerprint, result)

    async def _store_step(
        self, name: str, occurrence: int, step_fingerprint: str, result: Json, spawned: tuple[Creation, ...] = ()
    ) -> None:
        max_count = self.session.deps.limits.steps
        if self.checkpoints.step_count >= max_count:
            raise TooLarge(f"task {self.session.task.id!r}", self.checkpoints.step_count + 1, max_count, "steps")
        payload = encode(result, what=f"the result of step {name!r}")
        step = Step(name, occurrence, step_fingerprint, payload, self.session.fence, self._now())
        await self._note(Note(self.session.fence, steps=(step,), spawned=spawned, quota=self._children.quota))
        self.checkpoints.add_step(step)

    async def _note(self, note: Note) -> None:
        await self.parking.run_busy(self.session.write_from_body(note))

    def _has_new_signal(self, signals: int) -> bool | None:
        return True if self.session.journal.task.signals != signals else None

    def _now(self) -> datetime:
        return self.session.deps.clock.now()


def _format_seconds(seconds: float) -> str:
    short = f"{seconds:g}"
    return short if float(short) == seconds else repr(seconds)


class StateMachineApi:
    """The state machine API of one attempt on a workflow instance."""

    def __init__(self, api: LocalTaskApi) -> None:
        self._api = api
        self._session = api.session
        self._parking = api.parking

    async def enter_current_state(self) -> InstanceSnapshot:
        """Return the instance's current state. Later checkpoints belong to this stay in the state."""
        await self._parking.checkpoint()
        await self._parking.run_busy(self._session.reload())
        state = self._session.journal.task.state
        if state is None:
            raise InvalidValue(
                f"task {self._session.task.id!r} is not a workflow instance: it was created before its tool had states"
            )
        self._api.checkpoints.enter_scope(f"{state.number} {state.name}: ")
        self._session.state_number = state.number
        for input_request in self._session.journal.inputs:
            if input_request.is_open and input_request.asked_at < state.since:
                # Requested in a state that the instance has left: no body waits for the answer.
                await self._parking.run_busy(self._api.input_relay.close_input(input_request.key))
        return instance_snapshot(self._session.journal, state)

    @property
    def status_message(self) -> str | None:
        """The status that callers see: the state, and the reason for it."""
        return self._session.task.status_message

    async def apply_transition(self, planned: PlannedTransition, snapshot: InstanceSnapshot, actor: str) -> bool:
        """Take a transition. Returns False if another caller took one first."""
        # Unwritten progress of this state is of no use in the next.
        self._api.progress.take_pending()
        try:
            await self._parking.run_busy(
                self._session.write_from_body(transition_command(planned, snapshot, actor, self._session.fence))
            )
        except WrongState:
            return False
        if planned.kind == "cancel":
            # The task has ended with that, and so does the attempt.
            await self._session.refresh()
            await self._session.raise_if_stopped()
        return True

    async def wait_until_left(
        self, snapshot: InstanceSnapshot, until: datetime | None, action_task: "asyncio.Task[Any] | None"
    ) -> bool:
        """Wait until another caller takes the instance out of its state, or until a time, and return False then.

        The action of the state may be running meanwhile.
        """
        result = await self._parking.wait_for(lambda: self._has_left(snapshot), until, action_task=action_task)
        return result is not None

    def _has_left(self, snapshot: InstanceSnapshot) -> bool | None:
        state = self._session.task.state
        return True if state is None or state.number != snapshot.number else None


def state_machine_api(task: TaskContext) -> StateMachineApi:
    """Return the state machine API of a workflow instance's body."""
    return StateMachineApi(local_task_api(task))


def local_task_api(task: TaskContext) -> LocalTaskApi:
    """Return the task API of a workflow's body, which can do more than a context offers."""
    _, api, _ = task.internals()
    if not isinstance(api, LocalTaskApi):
        raise ConfigurationError("a workflow must run in the event loop of its worker, not in an isolated process")
    return api
