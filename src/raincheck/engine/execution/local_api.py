"""The desk of an attempt in this process: what a body asks for becomes a checkpoint, a report, a question, a child.

The desk of a process's body: where it is, taking a transition, and waiting for somebody else to take one.
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
from raincheck.engine.execution.api import Ended, StepTurn
from raincheck.engine.execution.checkpoints import Checkpoints, fingerprint
from raincheck.engine.execution.children import Offspring, Relaying
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.parking import Patience
from raincheck.engine.execution.progress import Reports
from raincheck.engine.execution.session import Hold
from raincheck.engine.inputs import check_may_ask, read_answer
from raincheck.engine.instances import command_of, situation_of
from raincheck.engine.workflow import Fired, Situation
from raincheck.errors import ConfigurationError, IllegalTransition, InvalidValue, TaskNotFound, TooLarge, WrongState
from raincheck.stores.commit import apply

LONGEST_SLEEP = timedelta(days=3_650)


class LocalDesk:
    """Serves one attempt. Lives in the event loop."""

    def __init__(
        self, hold: Hold, checkpoints: Checkpoints, reports: Reports, patience: Patience, offspring: Offspring
    ) -> None:
        self.hold = hold
        self.checkpoints = checkpoints
        self.reports = reports
        self.patience = patience
        self._offspring = offspring
        self.relaying = Relaying(hold)
        self._loop = asyncio.get_running_loop()
        self._artifacts = set(hold.journal.artifacts)

    @cached_property
    def _counting(self) -> asyncio.Lock:
        """From the count to the write, so that branches that run side by side don't get past a bound together."""
        return asyncio.Lock()

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        await self.hold.check_going_on()
        # What an earlier attempt has said already is not said again.
        if not self.checkpoints.is_replaying:
            self.reports.take(done, total, message)
        # A body that does nothing but report still lets others run.
        await asyncio.sleep(0)

    async def begin_step(self, name: str, fingerprint: str) -> StepTurn:
        await self.patience.checkpoint()
        name = self.checkpoints.scoped(name)
        occurrence = self.checkpoints.take(name)
        step = self.checkpoints.find_step(name, occurrence, fingerprint)
        if step is not None:
            return StepTurn(occurrence, is_recorded=True, result=decode(step.result))
        self.patience.begin_work(name, occurrence)
        return StepTurn(occurrence)

    async def finish_step(self, name: str, turn: StepTurn, fingerprint: str, result: Json) -> None:
        name = self.checkpoints.scoped(name)
        try:
            await self._record(name, turn.occurrence, fingerprint, result)
        finally:
            self.patience.end_work(name, turn.occurrence)

    def drop_step(self, name: str, occurrence: int) -> None:
        self._loop.call_soon_threadsafe(self.patience.end_work, self.checkpoints.scoped(name), occurrence)

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        await self.patience.checkpoint()
        check_may_ask(self.hold.journal.caller, kind, request)
        name = self.checkpoints.scoped(name)
        key = f"{name}-{self.checkpoints.take(name)}"
        if self.checkpoints.find_question(key, kind, request) is None:
            asked = InputRequest(key, kind, encode(request, what=f"question {key!r}"), self._now(), self.hold.fence)
            # With what it is at: whoever is asked looks at the task now.
            at = self.reports.hand_over()
            try:
                await self._note(Note(self.hold.fence, *at, asked=(asked,)))
            except BaseException:
                self.reports.take_back(*at)
                raise
        answer = await self.patience.wait_for(lambda: self.hold.journal.answer_to(key))
        return None if answer is None else read_answer(decode(answer))

    async def withdraw(self, name: str) -> None:
        """Take back what was asked under this name, which no other question has, if it is still open."""
        await self.patience.checkpoint()
        await self.patience.during(self.relaying.take_back(f"{self.checkpoints.scoped(name)}-0"))

    async def sleep(self, seconds: float, name: str | None) -> None:
        await self.patience.checkpoint()
        if not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_SLEEP.total_seconds():  # pyright: ignore[reportUnnecessaryIsInstance] - not every body is type-checked
            raise InvalidValue(
                f"a task can sleep from 0 to {LONGEST_SLEEP.total_seconds():.0f} seconds, not {seconds!r}"
            )
        # By what it is asked for with, where it has no name, so that branches that sleep side by side find each their
        # own, unless they sleep equally long.
        name = self.checkpoints.scoped(f"sleep {_shown(seconds) if name is None else name}")
        mark = fingerprint("sleep", seconds)
        occurrence = self.checkpoints.take(name)
        step = self.checkpoints.find_step(name, occurrence, mark)
        if step is None:
            until = self._now() + timedelta(seconds=seconds)
            await self._record(name, occurrence, mark, until.isoformat())
        else:
            until = datetime.fromisoformat(str(decode(step.result)))
        await self.patience.wait_for(lambda: None, until)

    async def set_variables(self, variables: Mapping[str, Json]) -> None:
        await self.patience.checkpoint()
        if self.hold.task.state is not None:
            raise InvalidValue(
                f"task {self.hold.task.id!r} is a process, whose data changes with its transitions: let the action "
                f"return Next(…, data)"
            )
        await self._note(Note(self.hold.fence, variables=encode(variables, what="variables")))

    async def keep_artifact(self, name: str, content: Json) -> None:
        await self.patience.checkpoint()
        most = self.hold.means.limits.artifacts
        async with self._counting:
            if name not in self._artifacts and len(self._artifacts) >= most:
                raise TooLarge(f"task {self.hold.task.id!r}", len(self._artifacts) + 1, most, "artifacts")
            artifact = Artifact(name, encode(content, what=f"artifact {name!r}"), self._now())
            await self._note(Note(self.hold.fence, artifacts=(artifact,)))
            self._artifacts.add(name)

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        await self.patience.checkpoint()
        mark = fingerprint("spawn", tool, arguments)
        # Likewise.
        name = self.checkpoints.scoped(f"spawn {tool} {mark[-8:]}" if name is None else f"spawn {name}")
        occurrence = self.checkpoints.take(name)
        step = self.checkpoints.find_step(name, occurrence, mark)
        if step is not None:
            return str(decode(step.result))
        async with self._counting:
            making = self._offspring.child(tool, arguments, self.checkpoints.count("spawn"))
            child = await self.patience.during(making)
            await self._keep_step(name, occurrence, mark, child.task.id, spawned=(child,))
        return child.task.id

    async def child_outcome(self, child_id: str) -> Ended:
        await self.patience.checkpoint()
        while True:
            # Taken before the look at the child, so that its end in between is not waited for in vain.
            seen = self.hold.journal.task.signals
            child = await self.patience.during(self._offspring.look_at(child_id))
            if child.task.is_terminal:
                await self.patience.during(self.relaying.withdraw(child.task.id))
                return self._offspring.outcome(child)
            await self.patience.during(self.relaying.relay(child))
            await self.patience.wait_for(lambda seen=seen: self._has_heard(seen))

    async def cancel_child(self, child_id: str) -> None:
        """Stop a child whose result nobody waits for any more."""
        means, task = self.hold.means, self.hold.task
        cancel = Cancel(actor=f"task {task.id}", reason="its parent gave it up")
        with suppress(IllegalTransition, TaskNotFound):
            scope = Scope.within(task.namespace)
            await apply(means.store, TaskId(child_id), scope, cancel, now=means.clock.now())

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        await self.patience.checkpoint()
        return self._offspring.name_successor(tool, arguments, result_as)

    async def _record(self, name: str, occurrence: int, mark: str, result: Json) -> None:
        async with self._counting:
            await self._keep_step(name, occurrence, mark, result)

    async def _keep_step(
        self, name: str, occurrence: int, mark: str, result: Json, spawned: tuple[Creation, ...] = ()
    ) -> None:
        most = self.hold.means.limits.steps
        if self.checkpoints.steps >= most:
            raise TooLarge(f"task {self.hold.task.id!r}", self.checkpoints.steps + 1, most, "steps")
        payload = encode(result, what=f"the result of step {name!r}")
        step = Step(name, occurrence, mark, payload, self.hold.fence, self._now())
        await self._note(Note(self.hold.fence, steps=(step,), spawned=spawned, quota=self._offspring.quota))
        self.checkpoints.add_step(step)

    async def _note(self, note: Note) -> None:
        await self.patience.during(self.hold.note(note))

    def _has_heard(self, seen: int) -> bool | None:
        return True if self.hold.journal.task.signals != seen else None

    def _now(self) -> datetime:
        return self.hold.means.clock.now()


def _shown(seconds: float) -> str:
    short = f"{seconds:g}"
    return short if float(short) == seconds else repr(seconds)


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
