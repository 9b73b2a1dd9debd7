"""The task API of attempts in this process: records steps, progress, input requests and children.

`ProgressReporter` takes reports of progress at any rate, and writes a few of them per second.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from raincheck.core.change import Creation
from raincheck.core.commands import Note
from raincheck.core.decide import merge_progress
from raincheck.core.records import Artifact, InputKind, InputRequest, Progress, Step
from raincheck.core.values import Json, Payload, decode, encode
from raincheck.engine.execution.checkpoints import Checkpoints, fingerprint
from raincheck.engine.execution.children import ChildTasks
from raincheck.engine.execution.context import StepStart
from raincheck.engine.execution.session import AttemptSession, ParkingPolicy
from raincheck.engine.inputs import TaskOutcome, check_capability, unwrap_answer
from raincheck.engine.worker.slots import SlotPool
from raincheck.errors import InvalidValue, LeaseLost, StoreError, TooLarge

logger = logging.getLogger(__name__)

MAX_SLEEP = timedelta(days=3_650)


class LocalTaskApi:
    """The task API of one attempt. Lives in the event loop."""

    def __init__(self, session: AttemptSession, slots: SlotPool) -> None:
        self.session = session
        self.checkpoints = Checkpoints(session.journal, session.tool.version)
        self.progress = ProgressReporter(session)
        self.parking = ParkingPolicy(session, slots)
        # Held from the count to the write, so that concurrent branches can't exceed a limit together.
        self._limit_lock = asyncio.Lock()
        self._artifacts = set(session.journal.artifacts)
        self._children: ChildTasks | None = None

    @property
    def children(self) -> ChildTasks:
        # Created on first use: most tasks have no children.
        self._children = self._children or ChildTasks(self.session)
        return self._children

    def create_successor(self, result: Callable[[], Json]) -> tuple[Creation, ...]:
        """Create the task that was set to start when this one completes, if there is one."""
        return () if self._children is None else self._children.create_successor(result)

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        await self.session.raise_if_stopped()
        # Reports that an earlier attempt already made are not repeated.
        if not self.checkpoints.is_replaying:
            self.progress.record(done, total, message)
        # A body that only reports still yields to other tasks.
        await asyncio.sleep(0)

    async def begin_step(self, name: str, fingerprint: str) -> StepStart:
        await self.parking.checkpoint()
        name, occurrence, step = self.checkpoints.next_step(name, fingerprint)
        if step is not None:
            return StepStart(occurrence, is_recorded=True, result=decode(step.result))
        self.parking.running_steps.add((name, occurrence))
        return StepStart(occurrence)

    async def finish_step(self, name: str, start: StepStart, fingerprint: str, result: Payload) -> None:
        name = f"{self.checkpoints.scope}{name}"
        try:
            async with self._limit_lock:
                await self._store_step(name, start.occurrence, fingerprint, result)
        finally:
            self.parking.end_step(name, start.occurrence)

    def drop_step(self, name: str, occurrence: int) -> None:
        name = f"{self.checkpoints.scope}{name}"
        self.session.loop.call_soon_threadsafe(self.parking.end_step, name, occurrence)

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        await self.parking.checkpoint()
        check_capability(self.session.journal.caller, kind, request)
        name = f"{self.checkpoints.scope}{name}"
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

    async def sleep(self, seconds: float, name: str | None) -> None:
        await self.parking.checkpoint()
        if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SLEEP.total_seconds():  # pyright: ignore[reportUnnecessaryIsInstance] - not every body is type-checked
            raise InvalidValue(f"a task can sleep from 0 to {MAX_SLEEP.total_seconds():.0f} seconds, not {seconds!r}")
        # An unnamed sleep is matched by its length, so that concurrent branches each find their own, unless they sleep
        # equally long.
        name = f"sleep {_format_seconds(seconds) if name is None else name}"
        mark = fingerprint("sleep", seconds)
        name, occurrence, step = self.checkpoints.next_step(name, mark)
        if step is None:
            until = self._now() + timedelta(seconds=seconds)
            async with self._limit_lock:
                await self.parking.run_busy(self._store_step(name, occurrence, mark, encode(until.isoformat())))
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
        max_count = self.session.deps.settings.limits.artifacts
        async with self._limit_lock:
            if name not in self._artifacts and len(self._artifacts) >= max_count:
                raise TooLarge(f"task {self.session.task.id!r}", len(self._artifacts) + 1, max_count, "artifacts")
            artifact = Artifact(name, encode(content, what=f"artifact {name!r}"), self._now())
            await self._note(Note(self.session.fence, artifacts=(artifact,)))
            self._artifacts.add(name)

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        await self.parking.checkpoint()
        mark = fingerprint("spawn", tool, arguments)
        # As above.
        name = f"spawn {tool} {mark[-8:]}" if name is None else f"spawn {name}"
        name, occurrence, step = self.checkpoints.next_step(name, mark)
        if step is not None:
            return str(decode(step.result))
        async with self._limit_lock:
            creating = self.children.create_child(tool, arguments, self.checkpoints.count("spawn"))
            child = await self.parking.run_busy(creating)
            await self.parking.run_busy(self._store_step(name, occurrence, mark, encode(child.task.id), (child,)))
        return child.task.id

    async def child_outcome(self, child_id: str) -> TaskOutcome:
        await self.parking.checkpoint()
        while True:
            # Read before the child, so that a child that ends in between is not waited for in vain.
            signals = self.session.journal.task.signals
            child = await self.parking.run_busy(self.children.view_child(child_id))
            if child.task.is_terminal:
                await self.parking.run_busy(self.children.withdraw(child.task.id))
                return self.children.child_outcome(child)
            await self.parking.run_busy(self.children.relay(child))
            await self.parking.wait_for(lambda signals=signals: self.session.journal.task.signals != signals or None)

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        await self.parking.checkpoint()
        return self.children.set_successor(tool, arguments, result_as)

    async def _store_step(
        self, name: str, occurrence: int, fingerprint: str, result: Payload, spawned: tuple[Creation, ...] = ()
    ) -> None:
        steps, deps, fence = self.checkpoints.steps, self.session.deps, self.session.fence
        if len(steps) >= deps.settings.limits.steps:
            raise TooLarge(f"task {self.session.task.id!r}", len(steps) + 1, deps.settings.limits.steps, "steps")
        step = Step(name, occurrence, fingerprint, result, fence, deps.clock.now())
        await self.session.write_from_body(Note(fence, steps=(step,), spawned=spawned, quota=deps.settings.quota))
        steps[name, occurrence] = step

    async def _note(self, note: Note) -> None:
        await self.parking.run_busy(self.session.write_from_body(note))

    def _now(self) -> datetime:
        return self.session.deps.clock.now()


def _format_seconds(seconds: float) -> str:
    short = f"{seconds:g}"
    return short if float(short) == seconds else repr(seconds)


class ProgressReporter:
    """Holds the latest report, and writes it when enough time has passed since the last write."""

    def __init__(self, session: AttemptSession) -> None:
        self._session = session
        self._progress: Progress | None = None
        self._message: str | None = None
        self._writer: asyncio.Task[None] | None = None
        self._has_warned = False

    def record(self, done: float | None, total: float | None, message: str | None) -> None:
        """Record a report, to be written soon. An invalid report is dropped: it is no reason to lose the work."""
        try:
            self._progress = self._progress if done is None else merge_progress(self._progress, Progress(done, total))
            self._message = self._message if message is None else str(message)
        except Exception as error:  # noqa: BLE001 - an invalid number, a message that can't be converted: any error
            if not self._has_warned:
                logger.warning("task %s: dropped an invalid progress report: %s", self._session.task.log_id, error)
            self._has_warned = True
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_at_intervals())

    def take_pending(self) -> tuple[Progress | None, str | None]:
        """Return and clear what is not written yet, for the next write."""
        latest = self._progress, self._message
        self._progress = self._message = None
        return latest

    def restore_pending(self, progress: Progress | None, message: str | None) -> None:
        """Restore reports whose write seems to have failed. Newer reports take precedence."""
        self._progress = self._progress or progress
        self._message = message if self._message is None else self._message

    async def _flush(self) -> None:
        progress, message = self.take_pending()
        if progress is None and message is None:
            return
        try:
            await self._session.write(Note(self._session.fence, progress, message))
        except BaseException:
            self.restore_pending(progress, message)
            raise

    async def close(self) -> None:
        """Write the last report, and stop."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        await self._flush_if_possible()

    async def _flush_if_possible(self) -> None:
        try:
            await self._flush()
        except LeaseLost:
            return
        except StoreError as error:
            logger.warning("task %s: a progress report was not written: %s", self._session.task.log_id, error)

    async def _write_at_intervals(self) -> None:
        # The first report is written at once, so that a slow task is seen to have started.
        while (self._progress is not None or self._message is not None) and not self._session.is_stopped:
            await self._flush_if_possible()
            await self._session.deps.clock.sleep(self._session.deps.settings.progress_interval)
        self._writer = None
