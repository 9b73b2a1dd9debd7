"""Run the instances of a state machine: state by state, each with its action, its wait and its timeout.

`MachineRules` are the rules of a machine: pure functions from an instance's snapshot to its possible transitions.

An attempt does not replay the instance from its start. It reads the instance's current state and resumes there: the
transitions are stored, and the checkpoints within a state belong to that stay in it.
"""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from raincheck.core.values import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.workflow_context import WorkflowContext
from raincheck.engine.tool import TaskTool, no_subject
from raincheck.engine.workflow import (
    AvailableTransition,
    InstanceSnapshot,
    NotCancellable,
    PlannedTransition,
    TransitionClosed,
)
from raincheck.errors import InvalidValue, ProtocolError, TooLarge, ToolError
from raincheck.workflows.definition import ArgumentValidator
from raincheck.workflows.machines.machine import Machine, Next, Outcome, State, Transition, takes_task

NO_OUTCOME = Outcome()


@dataclass(frozen=True, slots=True)
class MachineRules:
    """The transitions that a machine allows."""

    machine: Machine

    @property
    def initial(self) -> str:
        return self.machine.initial

    def fire(
        self,
        snapshot: InstanceSnapshot,
        action: str,
        data: Mapping[str, Json] | None = None,
        reason: str | None = None,
    ) -> PlannedTransition:
        return self.apply_transition(snapshot, self.find_transition(snapshot, action), data or {}, reason)

    def cancel(self, snapshot: InstanceSnapshot, reason: str | None = None) -> PlannedTransition:
        cancel_states = {state.name for state in self.machine.states if state.kind == "cancel"}
        if not cancel_states:
            raise NotCancellable("not-cancellable", f"workflow {self.machine.name!r} has no state of kind cancel")
        name = snapshot.state
        transitions = [transition for transition in self.state(snapshot).transitions if transition.to in cancel_states]
        if not transitions:
            raise NotCancellable(
                "no-cancel-transition", f"no transition leads from state {name!r} to a state of kind cancel"
            )
        refusals: list[str] = []
        for transition in transitions:
            try:
                return self.apply_transition(snapshot, transition, {}, reason)
            except TransitionClosed as closed:
                refusals.append(f"{transition.action!r} is closed, since {closed}")
        raise NotCancellable("no-cancel-transition", f"in state {name!r}, {'; '.join(refusals)}")

    def available(self, snapshot: InstanceSnapshot) -> Sequence[AvailableTransition]:
        return [
            AvailableTransition(
                transition.action,
                transition.to,
                transition.requires_reason,
                self._reason_closed(transition, snapshot),
            )
            for transition in self.state(snapshot).transitions
        ]

    def pick_transition(self, snapshot: InstanceSnapshot, outcome: Outcome) -> PlannedTransition | None:
        """Return the first open transition that the outcome of the state's action picks; None if it picks none."""
        for transition in self.state(snapshot).transitions:
            try:
                is_picked = transition.on is not None and transition.on(snapshot, outcome)
            except Exception as error:
                raise TransitionClosed(f"the `on` of {transition.action!r} can't be evaluated: {error}") from error
            if is_picked and self._reason_closed(transition, snapshot) is None:
                return self.apply_transition(snapshot, transition, {}, None, outcome, is_automatic=True)
        return None

    def state(self, snapshot: InstanceSnapshot) -> State:
        found = self.machine.by_name.get(snapshot.state)
        if found is None:
            raise InvalidValue(
                f"state {snapshot.state!r} no longer exists in version {self.machine.version!r} of workflow "
                f"{self.machine.name!r}: restore it, or cancel the instance"
            )
        return found

    def apply_transition(
        self,
        snapshot: InstanceSnapshot,
        transition: Transition,
        data: Mapping[str, Json],
        reason: str | None,
        outcome: Outcome = NO_OUTCOME,
        *,
        is_automatic: bool = False,
    ) -> PlannedTransition:
        """Take a transition, if it is open with this data.

        Raises:
            TransitionClosed: it is closed.
        """
        if transition.requires_reason and not is_automatic and not (reason or "").strip():
            raise TransitionClosed("it requires a reason: give one")
        snapshot = replace(snapshot, data={**snapshot.data, **data})
        closed = self._reason_closed(transition, snapshot)
        if closed is not None:
            raise TransitionClosed(closed)
        added: Mapping[str, Json] = {}
        if transition.update_data is not None:
            try:
                added = transition.update_data(snapshot, outcome)
            except Exception as error:
                raise TransitionClosed(f"the data that it adds can't be evaluated: {error}") from error
        kind = self.machine.by_name[transition.to].kind
        return PlannedTransition(transition.action, transition.to, {**snapshot.data, **added}, kind, reason)

    def find_transition(self, snapshot: InstanceSnapshot, action: str) -> Transition:
        """Return the transition of this name out of the instance's state.

        Raises:
            TransitionClosed: there is none.
        """
        state = self.state(snapshot)
        found = state.transition(action)
        if found is None:
            actions = ", ".join(repr(transition.action) for transition in state.transitions) or "none"
            raise TransitionClosed(f"this state has no transition of that name: the transitions are {actions}")
        return found

    def _reason_closed(self, transition: Transition, snapshot: InstanceSnapshot) -> str | None:
        """Return why a transition is closed, or None if it is open. In doubt it is closed."""
        guard = transition.guard
        if guard is None:
            return None
        if isinstance(guard, str):
            name, guard = guard, self.machine.guards.get(guard)
            if guard is None:
                return f"its guard {name!r} is missing"
        try:
            is_open = bool(guard(snapshot))
        except Exception as error:  # noqa: BLE001 - any error closes the transition
            return f"its guard failed: {_describe_error(error)}"
        if is_open:
            return None
        return f"its guard is false{'' if transition.label is None else f': {transition.label}'}"


def _describe_error(error: Exception) -> str:
    """Return an expression's own message, or another error with its type: a KeyError's message is only a name."""
    return str(error) if isinstance(error, InvalidValue) else f"{type(error).__name__}: {error}"


INSTANCE_FAILED_CODE = -32000
"""The error code of a failed instance, from the range that JSON-RPC leaves to servers."""


def machine_tool(machine: Machine) -> TaskTool:
    """Return the tool whose tasks are instances of the machine."""
    rules = MachineRules(machine)

    async def body(task: TaskContext, **arguments: Any) -> Json:  # noqa: ANN401 - any input schema
        del arguments  # They are part of the snapshot.
        return await _InstanceRun(rules, task).run()

    return TaskTool(
        body,
        machine.name,
        machine.version,
        timeout=machine.timeout,
        state_machine=rules,
        definition=machine.definition,
        get_subject=machine.subject or no_subject,
        validate=ArgumentValidator(machine.name, machine.input_schema).validate,
    )


class _InstanceRun:
    def __init__(self, rules: MachineRules, task: TaskContext) -> None:
        self._rules = rules
        self._task = task
        self._workflow = WorkflowContext(task)

    async def run(self) -> Json:
        while True:
            snapshot = await self._workflow.enter_current_state()
            state = self._rules.state(snapshot)
            if state.kind is not None:
                return self._end(state, snapshot)
            await self._run_state(state, snapshot)

    def _end(self, state: State, snapshot: InstanceSnapshot) -> Json:
        machine = self._rules.machine
        if state.kind == "success":
            return dict(snapshot.data) if machine.result is None else machine.result(snapshot)
        # A cancelled instance has already ended with its transition, so this is a failure.
        reason = (self._workflow.status_message or "").removeprefix(state.name)
        raise ProtocolError(
            f"workflow {machine.name!r} ended in state {state.name!r}{reason}",
            INSTANCE_FAILED_CODE,
            data=cast("Json", {"state": state.name, "data": dict(snapshot.data)}),
        )

    async def _run_state(self, state: State, snapshot: InstanceSnapshot) -> None:
        """Run a state until the instance has left it."""
        until = None if state.timeout is None else snapshot.since + timedelta(seconds=state.timeout.after)
        if state.action is None:
            await self._wait(state, snapshot, until, None)
            return
        # A transition from outside, or the timeout, ends the action.
        acting = asyncio.create_task(self._run_action(state, snapshot))
        waiting = asyncio.create_task(self._wait(state, snapshot, until, acting))
        try:
            await asyncio.wait([acting, waiting], return_when=asyncio.FIRST_COMPLETED)
            # If the instance has left its state, the outcome of its action no longer matters.
            if not waiting.done() and not acting.result():
                await waiting
        finally:
            acting.cancel()
            waiting.cancel()
            await asyncio.gather(acting, waiting, return_exceptions=True)
        if not waiting.cancelled():
            waiting.result()

    async def _wait(
        self, state: State, snapshot: InstanceSnapshot, until: datetime | None, acting: "asyncio.Task[bool] | None"
    ) -> None:
        if await self._workflow.wait_until_left(snapshot, until, acting) or state.timeout is None:
            return
        reason = f"nothing happened for {state.timeout.after:g} s"
        await self._take_transition(state.timeout.action, snapshot, "timeout", reason)

    async def _run_action(self, state: State, snapshot: InstanceSnapshot) -> bool:
        """Run the action, and take the transition that its outcome picks. Return False if it picks none."""
        try:
            outcome = await self._outcome(state, snapshot)
        except ToolError as error:
            if state.on_error is None:
                raise
            await self._take_transition(state.on_error, snapshot, "action", str(error))
            return True
        if isinstance(outcome, Next):
            if outcome.action is None:
                return False
            await self._take_transition(outcome.action, snapshot, "action", None, outcome.data)
            return True
        fired = self._picked(snapshot, outcome)
        if fired is None and outcome.error is not None:
            if state.on_error is None:
                raise ToolError(f"the action of state {state.name!r} failed: {outcome.error.get('message')}")
            await self._take_transition(state.on_error, snapshot, "action", str(outcome.error.get("message")))
            return True
        if fired is None:
            return False
        await self._fire(fired, snapshot, "action")
        return True

    async def _outcome(self, state: State, snapshot: InstanceSnapshot) -> Next | Outcome:
        assert state.action is not None  # noqa: S101 - callers have checked it
        if takes_task(state.action):
            value = await state.action(snapshot, task=self._task)
        else:
            # Recorded in encoded form, since records are JSON.
            record = _call_async if inspect.iscoroutinefunction(state.action) else _call_sync
            recorded = await self._task.step("action", partial(record, state.action, snapshot))
            value = _decode_outcome(cast("Mapping[str, Json]", recorded))
        match value:
            case Outcome() | Next():
                return value
            case None | str():
                return Next(value)
            case _:
                raise InvalidValue(
                    f"the action of state {state.name!r} must return a transition's name, a Next, an Outcome or None, "
                    f"not {type(value).__name__}"
                )

    async def _take_transition(
        self,
        action: str,
        snapshot: InstanceSnapshot,
        actor: str,
        reason: str | None,
        data: Mapping[str, Json] | None = None,
    ) -> None:
        try:
            # No caller has requested it, so it needs no reason.
            transition = self._rules.find_transition(snapshot, action)
            fired = self._rules.apply_transition(snapshot, transition, data or {}, reason, is_automatic=True)
        except TransitionClosed as closed:
            reason = f"{actor} would take {action!r}, which is closed, since {closed}"
            raise self._stuck_error(snapshot, reason, action) from closed
        await self._fire(fired, snapshot, actor)

    def _picked(self, snapshot: InstanceSnapshot, outcome: Outcome) -> PlannedTransition | None:
        try:
            return self._rules.pick_transition(snapshot, outcome)
        except TransitionClosed as closed:
            # Its guard is open, but the data that it adds can't be computed.
            raise self._stuck_error(snapshot, str(closed)) from closed

    async def _fire(self, fired: PlannedTransition, snapshot: InstanceSnapshot, actor: str) -> None:
        try:
            await self._workflow.apply_transition(fired, snapshot, actor)
        except TooLarge as error:
            reason = (
                f"after {fired.action!r}, {error.what} would have {error.size:,} bytes, but only {error.limit:,} are "
                f"allowed: store large values in a file or an artifact"
            )
            raise self._stuck_error(snapshot, reason, fired.action) from error

    def _stuck_error(self, snapshot: InstanceSnapshot, reason: str, transition: str | None = None) -> ProtocolError:
        data: Json = {"state": snapshot.state} | ({} if transition is None else {"transition": transition})
        name = self._rules.machine.name
        return ProtocolError(
            f"workflow {name!r} is stuck in state {snapshot.state!r}: {reason}", INSTANCE_FAILED_CODE, data=data
        )


async def _call_async(action: Any, snapshot: InstanceSnapshot) -> Json:  # noqa: ANN401 - any action
    return _encode_outcome(await action(snapshot))


def _call_sync(action: Any, snapshot: InstanceSnapshot) -> Json:  # noqa: ANN401 - likewise
    return _encode_outcome(action(snapshot))


def _encode_outcome(value: Any) -> Json:  # noqa: ANN401 - any return value
    match value:
        case Next(name, data):
            return {"next": name, "data": dict(data)}
        case Outcome(result, error):
            return {"result": result, "error": None if error is None else dict(error)}
        case _:
            return {"next": value, "data": {}}


def _decode_outcome(record: Mapping[str, Json]) -> object:
    if "next" not in record:
        return Outcome(record["result"], cast("Mapping[str, Json] | None", record["error"]))
    if record["next"] is None or isinstance(record["next"], str):
        return Next(record["next"], cast("Mapping[str, Json]", record["data"]))
    return record["next"]
