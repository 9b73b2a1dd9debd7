"""Run the instances of a state machine: state by state, each with its action, its wait and its timeout.

An attempt does not replay the instance from its start. It reads the instance's current state and resumes there: the
transitions are stored, and the checkpoints within a state belong to that stay in it.
"""

import asyncio
import inspect
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from raincheck.core.payload import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.local_api import StateMachineApi, state_machine_api
from raincheck.engine.tool import TaskTool
from raincheck.engine.workflow import InstanceSnapshot, PlannedTransition, TransitionClosed
from raincheck.errors import InvalidValue, ProtocolError, TooLarge, ToolError
from raincheck.workflows.definition import ArgumentValidator
from raincheck.workflows.machines.machine import Machine, Next, Outcome, State, takes_task
from raincheck.workflows.machines.rules import MachineRules

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
        get_subject=partial(_subject, machine),
        validate=ArgumentValidator(machine.name, machine.input_schema).validate,
    )


class _InstanceRun:
    def __init__(self, rules: MachineRules, task: TaskContext) -> None:
        self._rules = rules
        self._task = task
        self._api: StateMachineApi = state_machine_api(task)

    async def run(self) -> Json:
        while True:
            snapshot = await self._api.enter_current_state()
            state = self._rules.state(snapshot)
            if state.kind is not None:
                return self._end(state, snapshot)
            await self._run_state(state, snapshot)

    def _end(self, state: State, snapshot: InstanceSnapshot) -> Json:
        machine = self._rules.machine
        if state.kind == "success":
            return dict(snapshot.data) if machine.result is None else machine.result(snapshot)
        # A cancelled instance has already ended with its transition, so this is a failure.
        reason = (self._api.status_message or "").removeprefix(state.name)
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
        if await self._api.wait_until_left(snapshot, until, acting) or state.timeout is None:
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
            case None:
                return Next()
            case str():
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
            fired = self._rules.fire_automatic(snapshot, action, data or {}, reason)
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
            await self._api.apply_transition(fired, snapshot, actor)
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


def _subject(machine: Machine, arguments: Mapping[str, Json]) -> str | None:
    return None if machine.subject is None else machine.subject(arguments)
