"""The context of a workflow's body: what the engine offers workflows beside the calls of `TaskContext`.

A pipeline reads the records of earlier attempts, and withdraws work that is no longer awaited. A state machine reads
the state of its instance, takes transitions, and waits until another caller takes one.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from raincheck.core.commands import Cancel
from raincheck.core.records import Step, TaskId
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.local_api import LocalTaskApi
from raincheck.engine.instances import instance_snapshot, transition_command
from raincheck.engine.workflow import InstanceSnapshot, PlannedTransition
from raincheck.errors import ConfigurationError, IllegalTransition, InvalidValue, TaskNotFound, WrongState
from raincheck.stores.commit import apply


class WorkflowContext:
    """The attempt that runs a workflow's body, seen from that body."""

    def __init__(self, task: TaskContext) -> None:
        _, api, _ = task.internals()
        if not isinstance(api, LocalTaskApi):
            raise ConfigurationError("a workflow must run in the event loop of its worker, not in an isolated process")
        self._api = api
        self._session = api.session
        self._checkpoints = api.checkpoints
        self._parking = api.parking

    @property
    def recorded_steps(self) -> Sequence[Step]:
        """The recorded checkpoints, as last read from the store."""
        return self._session.journal.steps

    @property
    def stored_artifacts(self) -> Collection[str]:
        """The names of the stored artifacts, as last read."""
        return self._session.journal.artifacts

    def has_step(self, name: str) -> bool:
        """Return whether a step of this name, with any arguments, is recorded."""
        return self._checkpoints.has_step(name)

    def ignore_unreplayed(self) -> None:
        """Drop the checkpoints that were not replayed: the body takes another path, which does not need them."""
        self._checkpoints.ignore_unreplayed()

    async def withdraw_input(self, name: str) -> None:
        """Withdraw the input request of this name, which no other request has, if it is still open."""
        await self._parking.checkpoint()
        await self._parking.run_busy(self._api.children.close_input(f"{self._checkpoints.scope}{name}-0"))

    async def cancel_child(self, child_id: str) -> None:
        """Cancel a child whose result is no longer needed."""
        deps, now = self._session.deps, self._session.deps.clock.now()
        cancel = Cancel(actor=f"task {self._session.task.id}", reason="its parent no longer needs it")
        with suppress(IllegalTransition, TaskNotFound):
            await apply(deps.store, TaskId(child_id), deps.scope, cancel, now=now, on_commit=deps.on_commit)

    async def enter_current_state(self) -> InstanceSnapshot:
        """Return the instance's current state. Later checkpoints belong to this stay in the state."""
        await self._parking.checkpoint()
        await self._parking.run_busy(self._session.reload())
        state = self._session.journal.task.state
        if state is None:
            raise InvalidValue(
                f"task {self._session.task.id!r} is not a workflow instance: it was created before its tool had states"
            )
        self._checkpoints.enter_scope(f"{state.number} {state.name}: ")
        self._session.state_number = state.number
        for input_request in self._session.journal.inputs:
            if input_request.is_open and input_request.asked_at < state.since:
                # Requested in a state that the instance has left: no body waits for the answer.
                await self._parking.run_busy(self._api.children.close_input(input_request.key))
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

        def has_left() -> bool | None:
            state = self._session.task.state
            return True if state is None or state.number != snapshot.number else None

        return await self._parking.wait_for(has_left, until, action_task=action_task) is not None
