"""One attempt: runs the body and writes its outcome.

Theory of operation
===================

A body ends in one of two ways. It *returns or raises*: that becomes the task's result or failure. Or it is *stopped*:
`AttemptSession.stop_reason` is set, the body is asked to stop until it has (or its grace period is over), and the
reason decides what is written: a park, a release, a failure because of a timeout, or nothing. A stopped body unwinds
before the outcome is written, so that its `finally` blocks don't run beside the next attempt.

Every write of an attempt carries its fence. Whatever happens to the task meanwhile, the worst case is that a write is
refused and the attempt stops.

`AttemptRunner` runs a claimed attempt to its end. A dispatcher (the worker of this package, or a queue on another
machine) claims an attempt, which raises the task's fence, and passes the task to the runner. The runner does not depend
on which dispatcher it was.
"""

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, assert_never, cast

from raincheck import errors
from raincheck._async import retry_while_unavailable
from raincheck.core.commands import Command, Complete, Expire, Fail, Park, Release
from raincheck.core.records import Journal, Task
from raincheck.core.values import Json, Payload, decode, encode
from raincheck.engine.execution.bodies import Body, BodyCall, BodyFailure, BodyOutcome, BodyResult, LoopBody, ThreadBody
from raincheck.engine.execution.context import TaskInfo
from raincheck.engine.execution.failures import FailureMapper, unwrap_group
from raincheck.engine.execution.local_api import LocalTaskApi
from raincheck.engine.execution.session import AttemptSession, StopReason
from raincheck.engine.isolation.process_body import ProcessBody
from raincheck.engine.tool import EngineDeps, ExecutionMode
from raincheck.engine.worker.slots import SlotPool
from raincheck.errors import (
    IllegalTransition,
    InvalidValue,
    LeaseLost,
    ProtocolError,
    StoreError,
    TaskNotFound,
    ToolError,
    UnknownTool,
)
from raincheck.stores.change_feed import ANY_TASK, ChangeHint
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

STOP_POLL_INTERVAL = 0.1
"""Interval of checking whether a body that was asked to stop must be asked again."""

KILL_TIMEOUT = 2.0
"""Seconds in which a killed process is gone."""

BODY_TYPES = {ExecutionMode.LOOP: LoopBody, ExecutionMode.THREAD: ThreadBody, ExecutionMode.PROCESS: ProcessBody}


class AttemptExecution:
    """One attempt and its collaborators.

    `on_settled` is called when the attempt's outcome is written, or when none will be.
    """

    def __init__(self, session: AttemptSession, slots: SlotPool, on_settled: Callable[[AttemptSession], None]) -> None:
        self.session = session
        self.api = LocalTaskApi(session, slots)
        self.failure_mapper = FailureMapper(session.task, session.tool, session.deps.settings.limits)
        self.on_settled = on_settled

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
        self.session.refresh_soon()
        timeout_task = self._start_timeout()
        try:
            outcome = await self._wait_for_end(body)
            await self._write_outcome(outcome)
        finally:
            self._close()
            if timeout_task is not None:
                timeout_task.cancel()
            await self.session.stop_refreshing()
        while running := _running(body):
            logger.warning(
                "task %s: attempt %d has ended, but code of its body is still running and holds its slot (tool %s)",
                self.session.task.log_id,
                self.session.fence,
                self.session.tool.name,
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
        self.session.tool.check_arguments(arguments)
        info = TaskInfo(
            id=task.id,
            owner=task.owner.key,
            attempt=task.attempt_number,
            caller=_read(journal.caller),
            variables=cast("Mapping[str, Json]", _read(journal.variables) or {}),
        )
        start = BODY_TYPES[self.session.tool.execution_mode]
        body = start(BodyCall(self.session.tool, arguments, info, self.api, self.session.observe_stop, variables))
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
            + self.session.tool.grace
            + (KILL_TIMEOUT if self.session.tool.execution_mode is ExecutionMode.PROCESS else 0.0)
        )
        asks_again_at = loop.time()
        while self.session.is_stopped and (running := _running(body)) and loop.time() < until:
            # Ask again while one of the body's calls waits to be cancelled, and now and then in case the body ignored
            # the request. Not continuously, since each request interrupts the body's cleanup.
            if body.ended in running and (self.session.blocked_calls or loop.time() >= asks_again_at):
                self.session.is_stop_seen |= body.request_stop()
                asks_again_at = loop.time() + self.session.tool.grace / 4
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
        if self.session.tool.attempt_timeout is not None:
            ends.append((self.session.tool.attempt_timeout, StopReason.TIMEOUT))
        if self.session.task.deadline_at is not None:
            left = self.session.task.deadline_at - self.session.deps.clock.now()
            ends.append((left.total_seconds(), StopReason.DEADLINE))
        return asyncio.create_task(self._stop_after(*min(ends, key=lambda end: end[0]))) if ends else None

    async def _stop_after(self, seconds: float, reason: StopReason) -> None:
        await self.session.deps.clock.sleep(seconds)
        self.session.stop(reason)

    async def _write_outcome(self, outcome: BodyOutcome | None) -> None:
        await self.api.progress.close()
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
        self.api.checkpoints.check_all_replayed()
        result = encode(cast("Json", value), what=f"the result of tool {self.session.tool.name!r}")
        spawned = self.api.create_successor(lambda: self.session.tool.extract_value(decode(result)))
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


class AttemptRunner:
    """Runs attempts with the tools of one toolbox."""

    def __init__(
        self,
        deps: EngineDeps,
        slots: SlotPool,
        on_settled: Callable[[AttemptSession], None],
    ) -> None:
        self._deps = deps
        self._slots = slots
        self._on_settled = on_settled
        # The context variables at the engine's creation. Each attempt gets a copy and can't affect other attempts.
        self._variables = contextvars.copy_context()
        self._is_stopping = False
        self._unsettled: set[asyncio.Event] = set()
        self.sessions: tuple[AttemptSession, ...] = ()
        """The running attempts. Replaced and never changed, so that another thread can read it."""

    async def run_and_log_errors(
        self, task: Task, journal: Journal | None = None, *, may_start: bool = True
    ) -> Task | None:
        """Run the attempt as a background task: errors are logged."""
        try:
            return await self.run(task, journal, may_start=may_start)
        except Exception:
            # The lease expires, and another worker claims the task.
            logger.exception("task %s: attempt %d could not be run", task.log_id, task.attempt_number)
            return None

    async def run(self, task: Task, journal: Journal | None = None, *, may_start: bool = True) -> Task | None:
        """Run the attempt claimed on this task. Returns the task as the attempt left it.

        A caller that knows the journal passes it, which saves a read. Returns None if the attempt was not to be run any
        more: it is no longer the task's current attempt, or it was handed back because it may not start.

        Raises:
            UnknownTool: the task should not have been dispatched here.
            StoreError: its journal can't be read.
        """
        tool = self._deps.toolbox.find(task.tool)
        if tool is None:
            raise UnknownTool(task.tool.name, (tool.name for tool in self._deps.toolbox))
        settled = asyncio.Event()
        self._unsettled.add(settled)
        try:
            journal = journal or await self.read_journal(task)
            if journal is None or journal.task.attempt is None or journal.task.attempt_number != task.attempt_number:
                return None
            session = AttemptSession(self._deps, journal, tool, settled)
            if self._is_stopping or not may_start:
                await self._hand_back(session)
                return None
            self.sessions = (*self.sessions, session)
            try:
                await AttemptExecution(session, self._slots, self._on_settled).run(self._variables.copy())
            finally:
                self.sessions = tuple(other for other in self.sessions if other is not session)
            return session.task
        finally:
            settled.set()
            self._unsettled.discard(settled)

    async def wait_until_settled(self) -> None:
        """Wait until the outcome of every attempt is written. Parts of a body may still be running then."""
        for settled in tuple(self._unsettled):
            await settled.wait()

    async def _hand_back(self, session: AttemptSession) -> None:
        """Hand back an attempt before its start.

        Nothing is interrupted, so the task is due at once, whatever its tool's policy.
        """
        with suppress(LeaseLost):
            await session.write(Park(session.fence, session.task.signals, self._deps.clock.now()))

    def has_current(self, task: Task) -> bool:
        """Return whether an attempt on this task is running here and has not changed the task since."""
        return any(
            session.task.id == task.id and session.task.version == task.version and not session.settled.is_set()
            for session in self.sessions
        )

    async def read_journal(self, task: Task) -> Journal | None:
        """Read the journal, and retry while the store is unavailable. None if there is no such task.

        If it gave up, the attempt would count as interrupted.
        """
        deps = self._deps
        try:
            return await retry_while_unavailable(
                lambda: deps.store.journal(task.id, deps.scope, now=deps.clock.now()),
                on_failure=lambda error: logger.warning(
                    "task %s: its journal could not be read, will try again: %s", task.log_id, error
                ),
                sleep=deps.clock.sleep,
            )
        except TaskNotFound:
            return None

    def notify_changed(self, hint: ChangeHint) -> None:
        """Wake the attempts whose tasks may have changed."""
        for session in self.sessions:
            if hint == ANY_TASK or session.task.id in hint:
                session.may_have_changed.set()

    def stop_all(self, reason: StopReason) -> None:
        """Stop all attempts, and start none of those that are being claimed."""
        self._is_stopping = True
        for session in self.sessions:
            session.stop(reason)
