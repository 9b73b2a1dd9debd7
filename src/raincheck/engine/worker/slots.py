"""Which attempts have a place in this process, and for how many more there is room.

The places for attempts in one process: who waits in one, and whether somebody else needs it.
"""

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from raincheck.core.records import Task, TaskId, Tool
from raincheck.engine.toolbox import Pool, Toolbox
from raincheck.stores.change_feed import ANYTHING, Hint
from raincheck.tracebacks import text_logger


class Room:
    """Shared by the worker, which gives out places, and the attempts, which may wait in theirs.

    By tool, since a tool may have a bound of its own: then only its own attempts can make room for it.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """The worker should look again."""
        self.waiting: Counter[str] = Counter()
        """How many attempts of each tool have nothing to do but to wait."""
        self._needed: dict[str, asyncio.Event] = {}

    def needed(self, tool: str) -> asyncio.Event:
        """Set while another task could run in the place of an attempt of this tool."""
        return self._needed.get(tool) or self._needed.setdefault(tool, asyncio.Event())

    def ask_for_places(self, tools: Collection[str]) -> None:
        """Have the attempts of these tools give way if they only wait, and those of no others."""
        for tool, event in self._needed.items():
            if tool in tools:
                event.set()
            else:
                event.clear()

    def ask_for_all_places(self) -> None:
        self.ask_for_places(self._needed)

    @contextmanager
    def wait_in(self, tool: str) -> Generator[None]:
        self.waiting[tool] += 1
        self.changed.set()
        try:
            yield
        finally:
            self.waiting[tool] -= 1


logger = text_logger(__name__)

Job: TypeAlias = asyncio.Task[Task | None]
"""Sees an attempt through, and returns the task as it was left; None if that is not known."""


class Places:
    """The places of one process. Whoever begins an attempt has one first, so that there are never too many."""

    def __init__(self, toolbox: Toolbox, concurrency: int, room: Room) -> None:
        self._toolbox = toolbox
        self._concurrency = concurrency
        self._room = room
        self._context = contextvars.copy_context()
        self._taken: dict[Job, Task] = {}
        self._by_task: dict[TaskId, Job] = {}
        # What claims on their way may bring: so many attempts, of these tools.
        self._expected: Counter[frozenset[Tool]] = Counter()
        self._told: list[Callable[[], None]] = []

    @property
    def taken(self) -> frozenset[Job]:
        """The attempts under way."""
        return frozenset(self._taken)

    @property
    def is_full(self) -> bool:
        return len(self._taken) + self._expected.total() >= self._concurrency

    def room_for(self, pool: Pool) -> int:
        """How many attempts of it could be begun now."""
        room = self._concurrency - len(self._taken) - self._expected.total()
        if pool.bound is None:
            return room
        taken = sum(task.tool in pool.tools for task in self._taken.values())
        expected = sum(count for tools, count in self._expected.items() if tools & pool.tools)
        return min(room, pool.bound - taken - expected)

    def room_for_any(self, tools: frozenset[Tool]) -> int:
        """How many attempts with these tools could be begun now, whichever they are."""
        return min(self.room_for(pool) for pool in self._toolbox.pools if pool.tools & tools)

    def take(self, task: Task, attempt: Coroutine[Any, Any, Task | None]) -> Job:
        """Have an attempt seen through in a place, which is free again when that has ended."""
        # Not in the context of whoever asked for it: a request, and who made it, need not live as long as the work.
        context = self._context.copy()
        job = asyncio.get_running_loop().create_task(attempt, name=f"attempt on {task.id}", context=context)
        self._taken[job] = task
        self._by_task[task.id] = job
        job.add_done_callback(self._leave, context=context)
        self._tell_changed()
        return job

    def keep_free(self, tools: frozenset[Tool], count: int) -> None:
        """Keep places for what a claim may bring that is about to be made."""
        self._expected[tools] += count

    def let_go(self, tools: frozenset[Tool], count: int) -> None:
        """Keep them no longer: it has come, or has not."""
        self._expected[tools] -= count
        if not self._expected[tools]:
            del self._expected[tools]
        # Perhaps nothing came, and there is room again.
        self._tell_changed()

    def when_changed(self, tell: Callable[[], None]) -> None:
        """Call this whenever a place was taken or left."""
        self._told.append(tell)

    def _tell_changed(self) -> None:
        for tell in self._told:
            tell()

    def hear(self, hint: Hint) -> None:
        """Have the worker look, unless all that changed is under way here: then there is nothing in it to claim."""
        if hint == ANYTHING or not hint <= self._by_task.keys():
            self._room.changed.set()

    def settle(self, task: Task) -> None:
        """The attempt is over, as far as its task goes. Something of its body may still have the place."""
        if not task.is_terminal and self._by_task.pop(task.id, None) is not None:
            self._room.changed.set()

    def _leave(self, job: Job) -> None:
        error = None if job.cancelled() else job.exception()
        if error is not None:
            logger.error("task %s: an attempt could not be run", self._taken[job].shown_id, exc_info=error)
        left = None if job.cancelled() or error is not None else job.result()
        # Where there was room, nobody waits for this place, and a task that has ended wants none.
        if left is None or not left.is_terminal or self._was_wanted(self._taken[job].tool):
            self._room.changed.set()
        task_id = self._taken.pop(job).id
        if self._by_task.get(task_id) is job:
            del self._by_task[task_id]
        self._tell_changed()

    def _was_wanted(self, tool: Tool) -> bool:
        """Whether somebody may wait for a place that is about to be left."""
        return any(tool in pool.tools and self.room_for(pool) <= 0 for pool in self._toolbox.pools)
