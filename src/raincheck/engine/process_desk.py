"""The desk of a process's body: where it is, taking a transition, and waiting for somebody else to take one."""

import asyncio
from datetime import datetime
from typing import Any

from raincheck.engine.context import TaskContext
from raincheck.engine.local_desk import LocalDesk
from raincheck.engine.processes import command_of, situation_of
from raincheck.engine.workflow import Fired, Situation
from raincheck.errors import ConfigurationError, InvalidValue, WrongState


class ProcessDesk:
    """Serves one attempt of a process."""

    def __init__(self, desk: LocalDesk) -> None:
        self._desk = desk
        self._hold = desk.hold
        self._patience = desk.patience

    async def look(self) -> Situation:
        """Where the process is now. What is recorded from here on belongs to this stay in its state."""
        await self._patience.checkpoint()
        await self._patience.during(self._hold.reread())
        state = self._hold.journal.task.state
        if state is None:
            raise InvalidValue(f"task {self._hold.task.id!r} is no process: its workflow began after it")
        self._desk.checkpoints.enter(f"{state.number} {state.name}: ")
        self._hold.stay = state.number
        for question in self._hold.journal.inputs:
            if question.is_open and question.asked_at < state.since:
                # Asked in a state that the process has left: nobody waits for the answer.
                await self._patience.during(self._desk.relaying.take_back(question.key))
        return situation_of(self._hold.journal, state)

    @property
    def said(self) -> str | None:
        """What callers read of where the process is: the state, and why it is there."""
        return self._hold.task.status_message

    async def take(self, fired: Fired, situation: Situation, actor: str) -> bool:
        """Take a transition; false if somebody else took one first."""
        # What was not written yet of how far it was in this state is of no use in the next.
        self._desk.reports.hand_over()
        try:
            await self._patience.during(self._hold.note(command_of(fired, situation, actor, self._hold.fence)))
        except WrongState:
            return False
        if fired.kind == "cancel":
            # It has ended with that, and so does the attempt.
            await self._hold.look()
            await self._hold.check_going_on()
        return True

    async def wait(self, situation: Situation, until: datetime | None, acting: "asyncio.Task[Any] | None") -> bool:
        """Wait until the process leaves its state, by somebody else's doing, or until a moment: false then.

        Meanwhile the action of the state may be under way.
        """
        found = await self._patience.wait_for(lambda: self._has_left(situation), until, beside=acting)
        return found is not None

    def _has_left(self, situation: Situation) -> bool | None:
        state = self._hold.task.state
        return True if state is None or state.number != situation.number else None


def process_desk(task: TaskContext) -> ProcessDesk:
    """The desk of a process, for its body."""
    return ProcessDesk(local_desk(task))


def local_desk(task: TaskContext) -> LocalDesk:
    """The desk of a workflow's body, which can do more than what a context offers to everybody."""
    _, desk, _ = task.shared()
    if not isinstance(desk, LocalDesk):
        raise ConfigurationError("a workflow runs in the event loop of its worker, not in a process of its own")
    return desk
