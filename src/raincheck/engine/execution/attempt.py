"""One attempt: runs the body and writes its outcome.

Theory of operation
===================

A body ends in one of two ways. It *returns or raises*: that becomes the task's result or failure. Or it is *stopped*:
`AttemptSession.stop_reason` is set, the body is asked to stop until it has (or its grace period is over), and the
reason decides what is written: a park, a release, a failure because of a timeout, or nothing. A stopped body unwinds
before the outcome is written, so that its `finally` blocks don't run beside the next attempt.

Every write of an attempt carries its fence. Whatever happens to the task meanwhile, the worst case is that a write is
refused and the attempt stops.

`FailureMapper` turns the error of a body into what callers and operators may read. An unexpected error may hold
anything (a password in a URL, say), so callers get an error id instead, under which the log and the history have the
full error.
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
from raincheck.engine.execution.api import TaskInfo
from raincheck.engine.execution.bodies import Body, BodyCall, BodyFailure, BodyOutcome, BodyResult, LoopBody, ThreadBody
from raincheck.engine.execution.checkpoints import Checkpoints
from raincheck.engine.execution.children import ChildTasks
from raincheck.engine.execution.local_api import LocalTaskApi
from raincheck.engine.execution.progress import ProgressReporter
from raincheck.engine.execution.session import AttemptSession, StopReason
from raincheck.engine.isolation.process_body import IsolatedError, ProcessBody, ProcessDied
from raincheck.engine.isolation.protocol import escape_surrogates
from raincheck.engine.tool import ExecutionMode, TaskTool
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
"""Maximum characters of a traceback that are stored, from its end."""

CALLER_READABLE_ERRORS = (CheckpointMismatch, TaskFailed, InvalidValue, QuotaExceeded)
"""Errors with our own messages, which say what to do: callers may read them, and a retry would not help."""


@dataclass(frozen=True, slots=True)
class FailureMapper:
    """Maps the failure of one attempt to a command. `draw_jitter` draws a random number for the backoff."""

    task: Task
    tool: TaskTool
    draw_jitter: Callable[[], float]
    traceback_limit: int = TRACEBACK_LIMIT
    """Keeps the stored detail of an error within its size limit."""

    def map_tool_error(self, error: ToolError) -> Complete:
        """Map an error that the body raised for its caller: it is the task's result."""
        content: Json = {"message": str(error)} if error.content is None else error.content  # type: ignore[assignment] # encode rejects what is not JSON
        result = encode(content, what=f"the error of tool {self.tool.name!r}")
        return Complete(self.task.attempt_number, result, is_error=True, status_message=str(error))

    def map_protocol_error(self, error: ProtocolError) -> Fail:
        """Map an error that the body raised as a protocol error."""
        message = escape_surrogates(str(error))
        fields: dict[str, object] = {"kind": "protocol", "code": error.code, "message": message}
        if error.data is not None:
            fields["data"] = error.data
        payload = encode(cast("Json", fields), what=f"the error of tool {self.tool.name!r}")
        return Fail(self.task.attempt_number, payload, message, retryable=False, chance=self.draw_jitter())

    def map_timeout(self) -> Fail:
        """Map an attempt that took too long."""
        message = f"attempt {self.task.attempt_number} took longer than {self.tool.attempt_timeout:g} s"
        logger.warning("task %s: %s (tool %s)", self.task.log_id, message, self.tool.name)
        error = encode({"kind": "timeout", "message": message})
        retryable = self._may_be_cut_off and issubclass(TimeoutError, self.tool.retry_on)
        return Fail(self.task.attempt_number, error, message, retryable=retryable, chance=self.draw_jitter())

    def map_unexpected_error(self, error: BaseException) -> Fail:
        """Map an unexpected error of the body."""
        error_id = secrets.token_hex(4)
        text = escape_surrogates(format_traceback(error))
        logger.error(
            "task %s: attempt %d of tool %s raised %s (error %s)",
            self.task.log_id,
            self.task.attempt_number,
            self.tool.name,
            type(error).__name__,
            error_id,
            extra={
                "traceback": text,
                "task": self.task.log_id,
                "attempt": self.task.attempt_number,
                "tool": self.tool.name,
                "error_id": error_id,
            },
        )
        if isinstance(error, CALLER_READABLE_ERRORS):
            message, retryable = escape_surrogates(str(error)), False
        else:
            message = f"tool {self.tool.name!r} failed unexpectedly: ask its operator about error {error_id}"
            retryable = _matches_any(error, self.tool.retry_on)
            retryable &= self._may_be_cut_off or not isinstance(error, ProcessDied)
            # A configuration error recurs on every attempt.
            retryable &= not isinstance(error, ConfigurationError)
        payload = encode({"kind": "error", "message": message, "error_id": error_id})
        detail = {"error_id": error_id, "type": type(error).__name__, "traceback": text[-self.traceback_limit :]}
        fence, chance = self.task.attempt_number, self.draw_jitter()
        return Fail(fence, payload, message, retryable=retryable, chance=chance, detail=encode(detail))

    @property
    def _may_be_cut_off(self) -> bool:
        """Return whether a body that was cut off in the middle, by us or by a crash, may run again."""
        return self.task.retry.on_interrupt is OnInterrupt.RETRY


def unwrap_group(error: BaseException) -> BaseException:
    """Unwrap an error group with a single cause: the branches of a body raise groups."""
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


def _matches_any(error: BaseException, types: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_matches_any(leaf, types) for leaf in _leaves(cast("BaseExceptionGroup[BaseException]", error)))
    if isinstance(error, IsolatedError):
        return any(error.is_a(kind) for kind in types)
    return isinstance(error, types)


STOP_POLL_INTERVAL = 0.1
"""Interval of checking whether a body that was asked to stop must be asked again."""

KILL_TIMEOUT = 2.0
"""Seconds in which a killed process is gone."""

BODY_TYPES = {ExecutionMode.LOOP: LoopBody, ExecutionMode.THREAD: ThreadBody, ExecutionMode.PROCESS: ProcessBody}


@dataclass(frozen=True, slots=True, eq=False)
class AttemptExecution:
    """One attempt and its collaborators."""

    tool: TaskTool
    session: AttemptSession
    checkpoints: Checkpoints
    progress: ProgressReporter
    children: ChildTasks
    api: LocalTaskApi
    failure_mapper: FailureMapper
    on_settled: Callable[[AttemptSession], None]
    """Called when the attempt's outcome is written, or when none will be."""
    system_clock: Clock
    """For timers of this process, whichever clock the task uses."""

    async def run(self, variables: contextvars.Context) -> None:
        """Run the body and write its outcome. Returns when nothing of the body is running any more."""
        try:
            body = self._start(variables)
        except InvalidValue as error:
            try:
                await self._write(self.failure_mapper.map_unexpected_error(error))
            finally:
                self._close()
            return
        self.session.watcher.start_soon(self.system_clock)
        timeout_task = self._start_timeout()
        try:
            outcome = await self._wait_for_end(body)
            await self._write_outcome(outcome)
        finally:
            self._close()
            if timeout_task is not None:
                timeout_task.cancel()
            await self.session.watcher.stop()
        while running := _running(body):
            logger.warning(
                "task %s: attempt %d has ended, but code of its body is still running and holds its slot (tool %s)",
                self.session.task.log_id,
                self.session.fence,
                self.tool.name,
            )
            # Not the futures themselves: cancelling the wait would cancel them.
            await asyncio.wait(running)

    def _close(self) -> None:
        """Close the session: from here on, code that the body left running can't write."""
        self.session.stop(StopReason.LOST)
        self.session.settled.set()
        self.on_settled(self.session)

    def _start(self, variables: contextvars.Context) -> Body:
        journal, task = self.session.journal, self.session.task
        arguments = cast("Mapping[str, Json]", decode(journal.arguments))
        self.tool.check_arguments(arguments)
        info = TaskInfo(
            id=task.id,
            owner=task.owner.key,
            tool=task.tool.name,
            version=task.tool.version,
            attempt=task.attempt_number,
            caller=_read(journal.caller),
            variables=cast("Mapping[str, Json]", _read(journal.variables) or {}),
        )
        start = BODY_TYPES[self.tool.execution_mode]
        body = start(BodyCall(self.tool, arguments, info, self.api, self.session.observe_stop, variables))
        if isinstance(body, LoopBody):
            self.api.parking.main_branch = body.main_task
        return body

    async def _wait_for_end(self, body: Body) -> BodyOutcome | None:
        """Return the body's outcome; None if it did not stop in time."""
        await self._ended_or_stopped(body)
        loop = asyncio.get_running_loop()
        # A process is killed when its grace period is over, and is gone a little later.
        until = (
            loop.time()
            + self.session.grace
            + (KILL_TIMEOUT if self.tool.execution_mode is ExecutionMode.PROCESS else 0.0)
        )
        asks_again_at = loop.time()
        while self.session.is_stopped and (running := _running(body)) and loop.time() < until:
            # Ask again while one of the body's calls waits to be cancelled, and now and then in case the body ignored
            # the request. Not continuously, since each request interrupts the body's cleanup.
            if body.ended in running and (self.session.blocked_calls or loop.time() >= asks_again_at):
                self.session.is_stop_seen |= body.request_stop()
                asks_again_at = loop.time() + self.session.grace / 4
            await asyncio.wait(running, timeout=STOP_POLL_INTERVAL)
        return body.ended.result() if body.ended.done() else None

    async def _ended_or_stopped(self, body: Body) -> None:
        # A plain future: every attempt waits here, and a background task for each event costs more than a quick body.
        woken_up = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken_up.done():
                woken_up.set_result(None)

        body.on_end(wake)
        self.session.on_stop(wake)
        if not self.session.is_stopped:
            await woken_up

    def _start_timeout(self) -> "asyncio.Task[None] | None":
        ends: list[tuple[float, StopReason]] = []
        if self.tool.attempt_timeout is not None:
            ends.append((self.tool.attempt_timeout, StopReason.TIMEOUT))
        if self.session.task.deadline_at is not None:
            left = self.session.task.deadline_at - self.session.deps.clock.now()
            ends.append((left.total_seconds(), StopReason.DEADLINE))
        return asyncio.create_task(self._stop_after(*min(ends, key=lambda end: end[0]))) if ends else None

    async def _stop_after(self, seconds: float, reason: StopReason) -> None:
        await self.session.deps.clock.sleep(seconds)
        self.session.stop(reason)

    async def _write_outcome(self, outcome: BodyOutcome | None) -> None:
        await self.progress.close()
        if self.session.stop_reason is StopReason.LOST:
            return
        try:
            await self._write(self._outcome_command(outcome))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - an error of the body: a result that can't be stored, an error that can't be read
            await self._write(self.failure_mapper.map_unexpected_error(error))

    def _outcome_command(self, outcome: BodyOutcome | None) -> Command:
        # A body that did not know that it had to stop has completed. One that knew has returned early, as requested:
        # its result is only part of its work.
        if isinstance(outcome, BodyResult) and not self.session.is_stop_seen:
            return self._completed(outcome.value)
        reason = self.session.stop_reason
        match reason:
            case StopReason.PARK | StopReason.RELEASE | StopReason.LOST:
                return self.session.park_command or Release(self.session.fence)
            case StopReason.TIMEOUT:
                return self.failure_mapper.map_timeout()
            case StopReason.DEADLINE:
                return Expire(actor=self.session.task.id)
            case None:
                return self._raised(asyncio.CancelledError() if not isinstance(outcome, BodyFailure) else outcome.error)
            case _:
                assert_never(reason)

    def _completed(self, value: object) -> Complete:
        self.checkpoints.check_all_replayed()
        result = encode(cast("Json", value), what=f"the result of tool {self.tool.name!r}")
        spawned = self.children.create_successor(lambda: self.tool.extract_value(decode(result)))
        return Complete(self.session.fence, result, spawned=spawned)

    def _raised(self, error: BaseException) -> Command:
        error = unwrap_group(error)
        match error:
            case ToolError():
                return self.failure_mapper.map_tool_error(error)
            case ProtocolError():
                return self.failure_mapper.map_protocol_error(error)
            case _:
                return self.failure_mapper.map_unexpected_error(error)

    async def _write(self, command: Command) -> None:
        if isinstance(command, Complete | Fail) and self.session.state_number is not None:
            command = replace(command, state_number=self.session.state_number)
        try:
            await self.session.write(command)
        except errors.WrongState:
            # Another caller moved the instance to a different state, so the outcome of this body is dropped. The
            # instance continues in that state.
            await self._write(Release(self.session.fence))
        except (LeaseLost, IllegalTransition):
            # Another writer was first: the task was cancelled, or the sweeper ended its attempt. That write stands.
            logger.info(
                "task %s: attempt %d did not write its outcome, because another writer was first",
                self.session.task.log_id,
                self.session.fence,
            )


def _running(body: Body) -> set[asyncio.Future[Any]]:
    """Return the parts of the body that are still running."""
    return {future for future in (body.ended, *body.leftovers) if not future.done()}


def _read(payload: Payload | None) -> Json:
    return None if payload is None else decode(payload)
