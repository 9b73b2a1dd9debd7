"""The attempt runner: runs a claimed attempt to its end.

A dispatcher (the worker of this package, or a queue on another machine) claims an attempt, which raises the task's
fence, and passes the task to the runner. The runner does not depend on which dispatcher it was.
"""

import asyncio
import contextvars
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from raincheck.clock import SystemClock
from raincheck.core.commands import Park
from raincheck.core.owner import Scope
from raincheck.core.policies import backoff_seconds
from raincheck.core.records import Journal, Task
from raincheck.engine.execution.attempt import TRACEBACK_LIMIT, AttemptExecution, FailureMapper
from raincheck.engine.execution.checkpoints import Checkpoints
from raincheck.engine.execution.children import ChildTasks
from raincheck.engine.execution.local_api import LocalTaskApi
from raincheck.engine.execution.parking import ParkingPolicy
from raincheck.engine.execution.progress import ProgressReporter
from raincheck.engine.execution.session import AttemptSession, StopReason
from raincheck.engine.settings import Settings
from raincheck.engine.submit import EngineDeps
from raincheck.engine.tool import ExecutionMode, TaskTool
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.worker.slots import SlotDemand
from raincheck.errors import LeaseLost, StoreUnavailable, TaskNotFound, UnknownTool
from raincheck.stores.change_feed import ANY_TASK, ChangeHint
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

draw_random = secrets.SystemRandom().random


class AttemptRunner:
    """Runs attempts with the tools of one toolbox."""

    def __init__(
        self,
        deps: EngineDeps,
        toolbox: Toolbox,
        settings: Settings,
        demand: SlotDemand,
        on_settled: Callable[[AttemptSession], None],
        draw_jitter: Callable[[], float] = draw_random,
    ) -> None:
        self._deps = deps
        self._toolbox = toolbox
        self._settings = settings
        self._demand = demand
        self._on_settled = on_settled
        self._draw_jitter = draw_jitter
        # The context variables at the engine's creation. Each attempt gets a copy and can't affect other attempts.
        self._variables = contextvars.copy_context()
        self._system_clock = SystemClock()
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
        tool = self._toolbox.find(task.tool)
        if tool is None:
            raise UnknownTool(task.tool.name, (tool.name for tool in self._toolbox))
        settled = asyncio.Event()
        self._unsettled.add(settled)
        try:
            journal = journal or await self.read_journal(task)
            if journal is None or journal.task.attempt is None or journal.task.attempt_number != task.attempt_number:
                return None
            session = self._new_session(journal, tool, settled)
            if self._is_stopping or not may_start:
                await self._hand_back(session)
                return None
            await self._run(session, tool)
            return session.task
        finally:
            settled.set()
            self._unsettled.discard(settled)

    async def wait_until_settled(self) -> None:
        """Wait until the outcome of every attempt is written. Parts of a body may still be running then."""
        for settled in tuple(self._unsettled):
            await settled.wait()

    def _new_session(self, journal: Journal, tool: TaskTool, settled: asyncio.Event) -> AttemptSession:
        """Create the session of an attempt."""
        session = AttemptSession(
            self._deps, journal, tool.grace, settled, is_coroutine=tool.execution_mode is ExecutionMode.LOOP
        )
        if tool.attempt_timeout is not None:
            session.renew_until = self._deps.clock.now() + timedelta(seconds=tool.attempt_timeout + tool.grace)
        return session

    async def _hand_back(self, session: AttemptSession) -> None:
        """Hand back an attempt before its start.

        Nothing is interrupted, so the task is due at once, whatever its tool's policy.
        """
        with suppress(LeaseLost):
            await session.write(Park(session.fence, session.task.signals, self._deps.clock.now()))

    async def _run(self, session: AttemptSession, tool: TaskTool) -> None:
        self.sessions = (*self.sessions, session)
        try:
            await self._attempt(session, tool).run(self._variables.copy())
        finally:
            self.sessions = tuple(other for other in self.sessions if other is not session)

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
        tries = 0
        while True:
            try:
                scope = Scope.for_namespace(task.namespace)
                return await self._deps.store.journal(task.id, scope, now=self._deps.clock.now())
            except TaskNotFound:
                return None
            except StoreUnavailable as error:
                tries += 1
                logger.warning("task %s: its journal could not be read, will try again: %s", task.log_id, error)
                await self._deps.clock.sleep(backoff_seconds(tries))

    def notify_changed(self, hint: ChangeHint) -> None:
        """Wake the attempts whose tasks may have changed."""
        for session in self.sessions:
            if hint == ANY_TASK or session.task.id in hint:
                session.watcher.wake_event.set()

    def stop_all(self, reason: StopReason) -> None:
        """Stop all attempts, and start none of those that are being claimed."""
        self._is_stopping = True
        for session in self.sessions:
            session.stop(reason)

    def _attempt(self, session: AttemptSession, tool: TaskTool) -> AttemptExecution:
        checkpoints = Checkpoints(session.journal, tool.version)
        progress = ProgressReporter(session, self._settings.progress_interval)
        parking = ParkingPolicy(session, self._settings.park_after, self._demand)
        children = ChildTasks(session, self._toolbox, self._settings.quota)
        api = LocalTaskApi(session, checkpoints, progress, parking, children)
        # A character takes up to six bytes in JSON.
        traceback_limit = min(TRACEBACK_LIMIT, self._deps.limits.outcome // 8)
        failure_mapper = FailureMapper(session.task, tool, self._draw_jitter, traceback_limit)
        return AttemptExecution(
            tool, session, checkpoints, progress, children, api, failure_mapper, self._on_settled, self._system_clock
        )
