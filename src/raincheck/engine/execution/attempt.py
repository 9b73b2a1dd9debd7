"""One attempt, from its first line to what is written of its end.

Theory of operation
===================
A body ends in one of two ways. It *returns or raises*: that becomes the task's result or failure. Or it is *stopped*:
something sets `Hold.why_stopped`, the body is asked to stop until it has (or its grace is over), and the
reason says what to write: a park, a release, a failure for lack of time, or nothing. A body that is stopped unwinds
first, and then it is written, so that its `finally` blocks don't run beside the next attempt.

Whatever happens to the task meanwhile, everything an attempt writes carries its fence: the worst is that it is
refused, and stops.

What a body's ending means for its task: what callers may read of it, and what the operator should.

An error that nobody foresaw may hold anything (a password in a URL, say), so callers get an id instead, under which
the log and the history have the whole of it.
"""

import asyncio
import contextvars
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never, cast

from raincheck import errors
from raincheck.clock import Clock
from raincheck.core.commands import Command, Complete, Expire, Fail, Release
from raincheck.core.payload import Json, Payload, decode, encode
from raincheck.core.policies import OnInterrupt
from raincheck.core.records import Task
from raincheck.engine.execution.api import Facts
from raincheck.engine.execution.bodies import Body, BodyCall, Ending, LoopBody, Raised, Returned, ThreadBody
from raincheck.engine.execution.checkpoints import Checkpoints
from raincheck.engine.execution.children import Offspring
from raincheck.engine.execution.local_api import LocalDesk
from raincheck.engine.execution.progress import Reports
from raincheck.engine.execution.session import Hold, Stop
from raincheck.engine.isolation.process_body import IsolatedError, ProcessBody, ProcessDied
from raincheck.engine.isolation.protocol import plain_text
from raincheck.engine.tool import Place, TaskTool
from raincheck.errors import (
    CheckpointMismatch,
    ConfigurationError,
    IllegalTransition,
    InvalidValue,
    LeaseLost,
    ProtocolError,
    QuotaExceeded,
    StoreError,
    TaskFailed,
    ToolError,
)
from raincheck.tracebacks import format_traceback, text_logger

logger = text_logger(__name__)

TRACEBACK_LIMIT = 32_000
"""Characters of a traceback that are kept, from its end."""

OUR_OWN = (CheckpointMismatch, TaskFailed, InvalidValue, QuotaExceeded)
"""Errors whose words are ours and say what to do: callers may read them, and trying again would not help."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Says what becomes of one attempt. `chance` draws a random number for the wait before the next."""

    task: Task
    tool: TaskTool
    chance: Callable[[], float]
    traceback_limit: int = TRACEBACK_LIMIT
    """So that what is told of an error is never too much to be kept."""

    def reported(self, error: ToolError) -> Complete:
        """The body raised an error for its caller to read: that is its answer."""
        content: Json = {"message": str(error)} if error.content is None else error.content  # type: ignore[assignment] # encode refuses what is not JSON
        result = encode(content, what=f"the error of tool {self.tool.name!r}")
        return Complete(self.task.fence, result, is_error=True, status_message=str(error))

    def refused(self, error: ProtocolError) -> Fail:
        """The body ended its task with an error in the protocol's own words."""
        message = plain_text(str(error))
        told: dict[str, object] = {"kind": "protocol", "code": error.code, "message": message}
        if error.data is not None:
            told["data"] = error.data
        shown = encode(cast("Json", told), what=f"the error of tool {self.tool.name!r}")
        return Fail(self.task.fence, shown, message, retryable=False, chance=self.chance())

    def timed_out(self) -> Fail:
        """The attempt took too long."""
        message = f"attempt {self.task.fence} took longer than {self.tool.attempt_timeout:g} s"
        logger.warning("task %s: %s (tool %s)", self.task.shown_id, message, self.tool.name)
        error = encode({"kind": "timeout", "message": message})
        retryable = self._may_be_cut_off and issubclass(TimeoutError, self.tool.retry_on)
        return Fail(self.task.fence, error, message, retryable=retryable, chance=self.chance())

    def raised(self, error: BaseException) -> Fail:
        """The body raised an error that it should not have."""
        error_id = secrets.token_hex(4)
        text = plain_text(format_traceback(error))
        logger.error(
            "task %s: attempt %d of tool %s raised %s (error %s)",
            self.task.shown_id,
            self.task.fence,
            self.tool.name,
            type(error).__name__,
            error_id,
            extra={"traceback": text},
        )
        if isinstance(error, OUR_OWN):
            message, retryable = plain_text(str(error)), False
        else:
            message = f"tool {self.tool.name!r} failed unexpectedly: its operator finds it as error {error_id}"
            retryable = _is_among(error, self.tool.retry_on)
            retryable &= self._may_be_cut_off or not isinstance(error, ProcessDied)
            # A program that is put together wrongly is so the next time, too.
            retryable &= not isinstance(error, ConfigurationError)
        shown = encode({"kind": "error", "message": message, "error_id": error_id})
        told = {"error_id": error_id, "type": type(error).__name__}
        detail = encode({**told, "traceback": text[-self.traceback_limit :]})
        return Fail(self.task.fence, shown, message, retryable=retryable, chance=self.chance(), detail=detail)

    @property
    def _may_be_cut_off(self) -> bool:
        """Whether a body that was cut off in the middle, by us or by a crash, may be run again."""
        return self.task.retry.on_interrupt is OnInterrupt.RETRY


def unwrapped(error: BaseException) -> BaseException:
    """What a group of errors is about, if that is one thing: branches of a body raise groups."""
    if isinstance(error, BaseExceptionGroup):
        leaves = list(_leaves(cast("BaseExceptionGroup[BaseException]", error)))
        if len(leaves) == 1 or all(isinstance(leaf, ToolError) for leaf in leaves):
            return leaves[0]
    return cast("BaseException", error)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error


def _is_among(error: BaseException, types: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_among(leaf, types) for leaf in _leaves(cast("BaseExceptionGroup[BaseException]", error)))
    if isinstance(error, IsolatedError):
        return any(error.is_a(one) for one in types)
    return isinstance(error, types)


LOOK_AGAIN_AFTER = 0.1
"""Seconds after which to look whether a body that was asked to stop has to be asked again."""

KILLING = 2.0
"""Seconds in which a process that was killed is gone."""

BODIES = {Place.LOOP: LoopBody, Place.THREAD: ThreadBody, Place.PROCESS: ProcessBody}


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """What one attempt is made of."""

    tool: TaskTool
    hold: Hold
    checkpoints: Checkpoints
    reports: Reports
    offspring: Offspring
    desk: LocalDesk
    verdict: Verdict
    settled: Callable[[Hold], None]
    """Told when what comes of it is written, or nothing does."""
    machine: Clock
    """For what happens to the attempt here, whatever clock its task goes by."""

    async def run(self, variables: contextvars.Context) -> None:
        """Run the body, and write what comes of it. Returns when nothing of the body runs any more."""
        try:
            body = self._start(variables)
        except InvalidValue as error:
            try:
                await self._write(self.verdict.raised(error))
            finally:
                self._close()
            return
        self.hold.lookout.begin_soon(self.machine)
        timing_out = self._time_out()
        try:
            ending = await self._see_to_its_end(body)
            await self._settle(ending)
        finally:
            self._close()
            if timing_out is not None:
                timing_out.cancel()
            await self.hold.lookout.end()
        while running := _running(body):
            logger.warning(
                "task %s: something of attempt %d goes on after its end, and keeps its place until it ends (tool %s)",
                self.hold.task.shown_id,
                self.hold.fence,
                self.tool.name,
            )
            # Not the futures themselves: whoever gives up waiting for them would cancel them.
            await asyncio.wait(running)

    def _close(self) -> None:
        """From here on, whatever the body left running has nothing more to say."""
        self.hold.stop(Stop.LOST)
        self.hold.over.set()
        self.settled(self.hold)

    def _start(self, variables: contextvars.Context) -> Body:
        journal, task = self.hold.journal, self.hold.task
        arguments = cast("Mapping[str, Json]", decode(journal.arguments))
        self.tool.check_arguments(arguments)
        facts = Facts(
            id=task.id,
            owner=task.owner.key,
            tool=task.tool.name,
            version=task.tool.version,
            attempt=task.fence,
            caller=_read(journal.caller),
            variables=cast("Mapping[str, Json]", _read(journal.variables) or {}),
        )
        start = BODIES[self.tool.place]
        body = start(BodyCall(self.tool, arguments, facts, self.desk, self.hold.notice, variables))
        if isinstance(body, LoopBody):
            self.desk.patience.main_branch = body.job
        return body

    async def _see_to_its_end(self, body: Body) -> Ending | None:
        """How the body ended; None if it did not stop in time."""
        await self._ended_or_stopped(body)
        loop = asyncio.get_running_loop()
        # A process is killed when its grace is over, and then is gone a little later.
        until = loop.time() + self.hold.grace + (KILLING if self.tool.place is Place.PROCESS else 0.0)
        asks_again_at = loop.time()
        while self.hold.is_stopped and (running := _running(body)) and loop.time() < until:
            # Told again while one of its calls waits to be taken out of it, and now and then, in case it did not
            # listen. Not all the time, since being told takes it out of whatever it tidies up.
            if body.ended in running and (self.hold.refused or loop.time() >= asks_again_at):
                self.hold.is_noticed |= body.ask_to_stop()
                asks_again_at = loop.time() + self.hold.grace / 4
            await asyncio.wait(running, timeout=LOOK_AGAIN_AFTER)
        return body.ended.result() if body.ended.done() else None

    async def _ended_or_stopped(self, body: Body) -> None:
        # By hand: every attempt waits for it, and jobs that wait for the one and the other cost more than a quick body.
        woken = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        body.when_ended(wake)
        self.hold.when_stopped(wake)
        if not self.hold.is_stopped:
            await woken

    def _time_out(self) -> "asyncio.Task[None] | None":
        ends: list[tuple[float, Stop]] = []
        if self.tool.attempt_timeout is not None:
            ends.append((self.tool.attempt_timeout, Stop.TIMEOUT))
        if self.hold.task.deadline_at is not None:
            left = self.hold.task.deadline_at - self.hold.means.clock.now()
            ends.append((left.total_seconds(), Stop.DEADLINE))
        return asyncio.create_task(self._stop_after(*min(ends, key=lambda end: end[0]))) if ends else None

    async def _stop_after(self, seconds: float, why: Stop) -> None:
        await self.hold.means.clock.sleep(seconds)
        self.hold.stop(why)

    async def _settle(self, ending: Ending | None) -> None:
        await self.reports.close()
        if self.hold.why_stopped is Stop.LOST:
            return
        try:
            await self._write(self._command(ending))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - it is the body's: a result that can't be kept, an error that can't be read
            await self._write(self.verdict.raised(error))

    def _command(self, ending: Ending | None) -> Command:
        # A body that did not know that it had to stop has come to its end. What one returns that knew is only part of
        # its work: it was asked to stop, and did.
        if isinstance(ending, Returned) and not self.hold.is_noticed:
            return self._completed(ending.value)
        why = self.hold.why_stopped
        match why:
            case Stop.PARK | Stop.RELEASE | Stop.LOST:
                return self.hold.parking or Release(self.hold.fence)
            case Stop.TIMEOUT:
                return self.verdict.timed_out()
            case Stop.DEADLINE:
                return Expire(actor=self.hold.task.id)
            case None:
                return self._raised(asyncio.CancelledError() if not isinstance(ending, Raised) else ending.error)
            case _:
                assert_never(why)

    def _completed(self, value: object) -> Complete:
        self.checkpoints.check_all_were_asked_for()
        result = encode(cast("Json", value), what=f"the result of tool {self.tool.name!r}")
        spawned = self.offspring.successor(lambda: self.tool.value_of(decode(result)))
        return Complete(self.hold.fence, result, spawned=spawned)

    def _raised(self, error: BaseException) -> Command:
        error = unwrapped(error)
        match error:
            case ToolError():
                return self.verdict.reported(error)
            case ProtocolError():
                return self.verdict.refused(error)
            case _:
                return self.verdict.raised(error)

    async def _write(self, command: Command) -> None:
        if isinstance(command, Complete | Fail) and self.hold.stay is not None:
            command = replace(command, stay=self.hold.stay)
        try:
            await self.hold.write(command)
        except errors.WrongState:
            # Somebody has taken the process elsewhere, and what its body came to is of no account. It goes on there.
            await self._write(Release(self.hold.fence))
        except (LeaseLost, IllegalTransition):
            # Somebody else was quicker: it was cancelled, or taken back. What they wrote holds.
            logger.info("task %s: attempt %d came too late to write its end", self.hold.task.shown_id, self.hold.fence)


def _running(body: Body) -> set[asyncio.Future[Any]]:
    """What of the body runs."""
    return {future for future in (body.ended, *body.leftovers) if not future.done()}


def _read(payload: Payload | None) -> Json:
    return None if payload is None else decode(payload)
