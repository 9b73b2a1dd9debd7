"""How a process of a state machine runs: state by state, each with its action, its wait and its timeout.

An attempt does not go through the process from its beginning. It looks where the process is, and goes on from there:
the transition is what is kept, and what is recorded within a state belongs to that one stay in it.
"""

import asyncio
import inspect
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from raincheck.core.payload import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.local_api import ProcessDesk, process_desk
from raincheck.engine.tool import TaskTool
from raincheck.engine.workflow import Closed, Fired, Situation
from raincheck.errors import InvalidValue, ProtocolError, TooLarge, ToolError
from raincheck.workflows.definition import Arguments
from raincheck.workflows.machines.machine import Machine, Next, Outcome, State, takes_task
from raincheck.workflows.machines.rules import Rules

FAILED = -32000
"""The code of the error with which a process fails: the range that JSON-RPC leaves to servers."""


def machine_tool(machine: Machine) -> TaskTool:
    """The tool whose tasks are processes of the machine."""
    rules = Rules(machine)

    async def body(task: TaskContext, **arguments: Any) -> Json:  # noqa: ANN401 - whatever the input schema takes
        del arguments  # They are part of the situation.
        return await _Run(rules, task).to_its_end()

    return TaskTool(
        body,
        machine.name,
        machine.version,
        timeout=machine.timeout,
        process=rules,
        definition=machine.definition,
        subject_of=partial(_subject, machine),
        accepts=Arguments(machine.name, machine.input_schema).filled,
    )


class _Run:
    def __init__(self, rules: Rules, task: TaskContext) -> None:
        self._rules = rules
        self._task = task
        self._desk: ProcessDesk = process_desk(task)

    async def to_its_end(self) -> Json:
        while True:
            situation = await self._desk.look()
            state = self._rules.state(situation)
            if state.kind is not None:
                return self._end(state, situation)
            await self._stay(state, situation)

    def _end(self, state: State, situation: Situation) -> Json:
        machine = self._rules.machine
        if state.kind == "success":
            return dict(situation.data) if machine.result is None else machine.result(situation)
        # A process that was cancelled has ended with its transition, so this is a failure.
        why = (self._desk.said or "").removeprefix(state.name)
        raise ProtocolError(
            f"workflow {machine.name!r} ended in state {state.name!r}{why}",
            FAILED,
            data=cast("Json", {"state": state.name, "data": dict(situation.data)}),
        )

    async def _stay(self, state: State, situation: Situation) -> None:
        """Do what the state does, until the process has left it."""
        until = None if state.timeout is None else situation.since + timedelta(seconds=state.timeout.after)
        if state.action is None:
            await self._wait(state, situation, until, None)
            return
        # Whoever takes the process elsewhere, or the timeout, ends the action.
        acting = asyncio.create_task(self._act(state, situation))
        waiting = asyncio.create_task(self._wait(state, situation, until, acting))
        try:
            await asyncio.wait([acting, waiting], return_when=asyncio.FIRST_COMPLETED)
            # If the process has left its state, it does not matter any more what its action came to.
            if not waiting.done() and not acting.result():
                await waiting
        finally:
            for one in (acting, waiting):
                one.cancel()
            await asyncio.gather(acting, waiting, return_exceptions=True)
        if not waiting.cancelled():
            waiting.result()

    async def _wait(
        self, state: State, situation: Situation, until: datetime | None, acting: "asyncio.Task[bool] | None"
    ) -> None:
        if await self._desk.wait(situation, until, acting) or state.timeout is None:
            return
        reason = f"nothing happened for {state.timeout.after:g} s"
        await self._take(state.timeout.action, situation, "timeout", reason)

    async def _act(self, state: State, situation: Situation) -> bool:
        """Do the action, and take the transition that its outcome picks; false if it picks none."""
        try:
            outcome = await self._outcome(state, situation)
        except ToolError as error:
            if state.on_error is None:
                raise
            await self._take(state.on_error, situation, "action", str(error))
            return True
        if isinstance(outcome, Next):
            if outcome.action is None:
                return False
            await self._take(outcome.action, situation, "action", None, outcome.data)
            return True
        fired = self._picked(situation, outcome)
        if fired is None and outcome.error is not None:
            if state.on_error is None:
                raise ToolError(f"the action of state {state.name!r} failed: {outcome.error.get('message')}")
            await self._take(state.on_error, situation, "action", str(outcome.error.get("message")))
            return True
        if fired is None:
            return False
        await self._fire(fired, situation, "action")
        return True

    async def _outcome(self, state: State, situation: Situation) -> Next | Outcome:
        assert state.action is not None  # noqa: S101 - whoever asks has seen it
        if takes_task(state.action):
            value = await state.action(situation, task=self._task)
        else:
            # Recorded as what it says, since it is JSON that is recorded.
            record = _awaited if inspect.iscoroutinefunction(state.action) else _called
            said = await self._task.step("action", partial(record, state.action, situation))
            value = _read(cast("Mapping[str, Json]", said))
        match value:
            case Outcome() | Next():
                return value
            case None:
                return Next()
            case str():
                return Next(value)
            case _:
                raise InvalidValue(
                    f"the action of state {state.name!r} returns a transition's name, a Next, an Outcome or nothing, "
                    f"not {type(value).__name__}"
                )

    async def _take(
        self,
        action: str,
        situation: Situation,
        actor: str,
        reason: str | None,
        data: Mapping[str, Json] | None = None,
    ) -> None:
        try:
            fired = self._rules.fire_by_itself(situation, action, data or {}, reason)
        except Closed as closed:
            why = f"{actor} would take {action!r}, which is closed, since {closed}"
            raise self._stuck(situation, why, action) from closed
        await self._fire(fired, situation, actor)

    def _picked(self, situation: Situation, outcome: Outcome) -> Fired | None:
        try:
            return self._rules.picked(situation, outcome)
        except Closed as closed:
            # Its guard is open, but what it adds to the data can't be had.
            raise self._stuck(situation, str(closed)) from closed

    async def _fire(self, fired: Fired, situation: Situation, actor: str) -> None:
        try:
            await self._desk.take(fired, situation, actor)
        except TooLarge as error:
            why = (
                f"after {fired.action!r}, {error.what} would have {error.size:,} bytes, and {error.limit:,} are "
                f"allowed: keep what is large in a file or an artifact"
            )
            raise self._stuck(situation, why, fired.action) from error

    def _stuck(self, situation: Situation, why: str, transition: str | None = None) -> ProtocolError:
        data: Json = {"state": situation.state} | ({} if transition is None else {"transition": transition})
        name = self._rules.machine.name
        return ProtocolError(f"workflow {name!r} is stuck in state {situation.state!r}: {why}", FAILED, data=data)


async def _awaited(action: Any, situation: Situation) -> Json:  # noqa: ANN401 - any action
    return _recorded(await action(situation))


def _called(action: Any, situation: Situation) -> Json:  # noqa: ANN401 - likewise
    return _recorded(action(situation))


def _recorded(value: Any) -> Json:  # noqa: ANN401 - whatever it returned
    match value:
        case Next(name, data):
            return {"next": name, "data": dict(data)}
        case Outcome(result, error):
            return {"result": result, "error": None if error is None else dict(error)}
        case _:
            return {"next": value, "data": {}}


def _read(said: Mapping[str, Json]) -> object:
    if "next" not in said:
        return Outcome(said["result"], cast("Mapping[str, Json] | None", said["error"]))
    if said["next"] is None or isinstance(said["next"], str):
        return Next(said["next"], cast("Mapping[str, Json]", said["data"]))
    return said["next"]


def _subject(machine: Machine, arguments: Mapping[str, Json]) -> str | None:
    return None if machine.subject is None else machine.subject(arguments)
