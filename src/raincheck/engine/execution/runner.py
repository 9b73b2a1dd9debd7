"""The attempt runner: takes an attempt that was begun, by whomever, and sees it through.

Whoever dispatches (the worker of this package, or a queue on another machine) begins an attempt, which raises the
task's fence, and hands the task over. The runner knows nothing of who that was.
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
from raincheck.core.policies import pause_after
from raincheck.core.records import Journal, Task
from raincheck.engine.execution.attempt import TRACEBACK_LIMIT, Attempt, Verdict
from raincheck.engine.execution.checkpoints import Checkpoints
from raincheck.engine.execution.children import Offspring
from raincheck.engine.execution.local_api import LocalDesk
from raincheck.engine.execution.parking import Patience
from raincheck.engine.execution.progress import Reports
from raincheck.engine.execution.session import Hold, Stop
from raincheck.engine.settings import Settings
from raincheck.engine.submit import Means
from raincheck.engine.tool import Place, TaskTool
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.worker.slots import Room
from raincheck.errors import LeaseLost, StoreUnavailable, TaskNotFound, UnknownTool
from raincheck.stores.change_feed import ANYTHING, Hint
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

draw_chance = secrets.SystemRandom().random


class Runner:
    """Runs attempts with the tools of one toolbox."""

    def __init__(
        self,
        means: Means,
        toolbox: Toolbox,
        settings: Settings,
        room: Room,
        settled: Callable[[Hold], None],
        chance: Callable[[], float] = draw_chance,
    ) -> None:
        self._means = means
        self._toolbox = toolbox
        self._settings = settings
        self._room = room
        self._settled = settled
        self._chance = chance
        # As they are where the engine is made. Each attempt gets a copy, so that none sees what another set.
        self._variables = contextvars.copy_context()
        self._machine = SystemClock()
        self._is_stopping = False
        self._unsettled: set[asyncio.Event] = set()
        self.holds: tuple[Hold, ...] = ()
        """The attempts that run now. Replaced and never changed, so that another thread can look at it."""

    async def see_through(self, task: Task, journal: Journal | None = None, *, may_begin: bool = True) -> Task | None:
        """`run`, for a job of its own."""
        try:
            return await self.run(task, journal, may_begin=may_begin)
        except Exception:
            # The lease runs out, and somebody takes it from there.
            logger.exception("task %s: attempt %d could not be run", task.shown_id, task.fence)
            return None

    async def run(self, task: Task, journal: Journal | None = None, *, may_begin: bool = True) -> Task | None:
        """Run the attempt that was begun on this task. Returns when it is over, with the task as it was left.

        Whoever knows its journal gives it along, and it is not read. None if it was not to be run any more: nobody has
        it, or it is handed back because it may not begin.

        Raises:
            UnknownTool: it should not have been dispatched here.
            StoreError: its journal can't be read.
        """
        tool = self._toolbox.find(task.tool)
        if tool is None:
            raise UnknownTool(task.tool.name, (one.name for one in self._toolbox))
        over = asyncio.Event()
        self._unsettled.add(over)
        try:
            journal = journal or await self.journal(task)
            if journal is None or journal.task.attempt is None or journal.task.fence != task.fence:
                return None
            hold = self._take(journal, tool, over)
            if self._is_stopping or not may_begin:
                await self._hand_back(hold)
                return None
            await self._run(hold, tool)
            return hold.task
        finally:
            over.set()
            self._unsettled.discard(over)

    async def settled(self) -> None:
        """Wait until what came of every attempt is written. Something of a body may still run then."""
        for over in tuple(self._unsettled):
            await over.wait()

    def _take(self, journal: Journal, tool: TaskTool, over: asyncio.Event) -> Hold:
        """The attempt in hand."""
        hold = Hold(self._means, journal, tool.grace, over, is_coroutine=tool.place is Place.LOOP)
        if tool.attempt_timeout is not None:
            hold.lasts_until = self._means.clock.now() + timedelta(seconds=tool.attempt_timeout + tool.grace)
        return hold

    async def _hand_back(self, hold: Hold) -> None:
        """Nothing of it has begun, so nothing is cut off: it is due again at once, whatever its tool says."""
        with suppress(LeaseLost):
            await hold.write(Park(hold.fence, hold.task.signals, self._means.clock.now()))

    async def _run(self, hold: Hold, tool: TaskTool) -> None:
        self.holds = (*self.holds, hold)
        try:
            await self._attempt(hold, tool).run(self._variables.copy())
        finally:
            self.holds = tuple(other for other in self.holds if other is not hold)

    def has(self, task: Task) -> bool:
        """Whether an attempt on this task is under way here, which has not changed it since."""
        return any(
            hold.task.id == task.id and hold.task.version == task.version and not hold.over.is_set()
            for hold in self.holds
        )

    async def journal(self, task: Task) -> Journal | None:
        """Read it, and again if the store is away just now: to let go would look as if the attempt had been cut off.

        None if there is no such task.
        """
        tries = 0
        while True:
            try:
                scope = Scope.within(task.namespace)
                return await self._means.store.journal(task.id, scope, now=self._means.clock.now())
            except TaskNotFound:
                return None
            except StoreUnavailable as error:
                tries += 1
                logger.warning("task %s: will try again to read its journal, since %s", task.shown_id, error)
                await self._means.clock.sleep(pause_after(tries))

    def poke(self, hint: Hint) -> None:
        """Have the attempts look whose tasks may have changed."""
        for hold in self.holds:
            if hint == ANYTHING or hold.task.id in hint:
                hold.lookout.poked.set()

    def stop_all(self, why: Stop) -> None:
        """Have them stop, and let none begin that is on its way."""
        self._is_stopping = True
        for hold in self.holds:
            hold.stop(why)

    def _attempt(self, hold: Hold, tool: TaskTool) -> Attempt:
        checkpoints = Checkpoints(hold.journal, tool.version)
        reports = Reports(hold, self._settings.report_every)
        patience = Patience(hold, self._settings.patience, self._room)
        offspring = Offspring(hold, self._toolbox, self._settings.quota)
        desk = LocalDesk(hold, checkpoints, reports, patience, offspring)
        # A character takes up to six bytes in JSON.
        traceback_limit = min(TRACEBACK_LIMIT, self._means.limits.outcome // 8)
        verdict = Verdict(hold.task, tool, self._chance, traceback_limit)
        return Attempt(tool, hold, checkpoints, reports, offspring, desk, verdict, self._settled, self._machine)
