"""Worker slots of one process: which attempts hold them, how many are free, and whether other tasks need them."""

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from raincheck.core.records import Task, TaskId, Tool
from raincheck.engine.toolbox import ConcurrencyGroup, Toolbox
from raincheck.stores.change_feed import ANY_TASK, ChangeHint
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

AttemptTask: TypeAlias = asyncio.Task[Task | None]
"""Runs an attempt to its end, and returns the task as the attempt left it; None if that is not known."""


class SlotPool:
    """The slots of one process. Every attempt takes one before it starts, so the limit is never exceeded.

    An attempt that only waits keeps its slot for a while. The attempts that do are counted by tool, because a tool may
    have its own limit: then only its own attempts can free a slot for it.
    """

    def __init__(self, toolbox: Toolbox, concurrency: int) -> None:
        self._toolbox = toolbox
        self._concurrency = concurrency
        self.changed = asyncio.Event()
        """Set when the worker should check for work again."""
        self.waiting: Counter[str] = Counter()
        """Number of attempts of each tool that only wait."""
        self._wanted: dict[str, asyncio.Event] = {}
        self._context = contextvars.copy_context()
        self._running: dict[AttemptTask, Task] = {}
        self._by_task: dict[TaskId, AttemptTask] = {}
        # What claims in flight may return: this many attempts, of these tools.
        self._reserved: Counter[frozenset[Tool]] = Counter()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def running(self) -> frozenset[AttemptTask]:
        """The running attempts."""
        return frozenset(self._running)

    @property
    def is_full(self) -> bool:
        return len(self._running) + self._reserved.total() >= self._concurrency

    def free_slots(self, group: ConcurrencyGroup) -> int:
        """Return how many attempts of this group could start now."""
        free = self._concurrency - len(self._running) - self._reserved.total()
        if group.limit is None:
            return free
        running = sum(task.tool in group.tools for task in self._running.values())
        expected = sum(count for tools, count in self._reserved.items() if tools & group.tools)
        return min(free, group.limit - running - expected)

    def free_slots_for_any(self, tools: frozenset[Tool]) -> int:
        """Return how many attempts of any of these tools could start now."""
        return min(self.free_slots(group) for group in self.groups if group.tools & tools)

    @property
    def groups(self) -> tuple[ConcurrencyGroup, ...]:
        """The groups of tools that share a limit."""
        return self._toolbox.concurrency_groups

    @property
    def tools(self) -> frozenset[Tool]:
        """The tools whose tasks this process runs."""
        return frozenset[Tool]().union(*(group.tools for group in self.groups))

    @property
    def free_tools(self) -> frozenset[Tool]:
        """The tools for which a slot is free."""
        groups = [group for group in self.groups if self.free_slots(group) > 0]
        # Most toolboxes have one group, whose set is not copied.
        return groups[0].tools if len(groups) == 1 else frozenset[Tool]().union(*(group.tools for group in groups))

    def start(self, task: Task, attempt: Coroutine[Any, Any, Task | None]) -> AttemptTask:
        """Run an attempt in a slot, which is free again when the attempt has ended."""
        # Not in the submitter's context: the request, and its caller's identity, need not live as long as the work.
        context = self._context.copy()
        attempt_task = asyncio.get_running_loop().create_task(attempt, name=f"attempt on {task.id}", context=context)
        self._running[attempt_task] = task
        self._by_task[task.id] = attempt_task
        attempt_task.add_done_callback(self._release_slot, context=context)
        self._notify_changed()
        return attempt_task

    def reserve(self, tools: frozenset[Tool], count: int) -> None:
        """Reserve slots for what a claim may return."""
        self._reserved[tools] += count

    def cancel_reservation(self, tools: frozenset[Tool], count: int) -> None:
        """Cancel the reservation: the claim has returned."""
        self._reserved[tools] -= count
        if not self._reserved[tools]:
            del self._reserved[tools]
        # The claim may have returned nothing, and the slots are free again.
        self._notify_changed()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call this whenever a slot is taken or freed."""
        self._callbacks.append(callback)

    def _notify_changed(self) -> None:
        for callback in self._callbacks:
            callback()

    def on_hint(self, hint: ChangeHint) -> None:
        """Wake the worker, unless all changed tasks are running here: then there is nothing to claim."""
        if hint == ANY_TASK or not hint <= self._by_task.keys():
            self.changed.set()

    def on_attempt_settled(self, task: Task) -> None:
        """Handle an attempt whose outcome is written. Parts of its body may still hold the slot."""
        if not task.is_terminal and self._by_task.pop(task.id, None) is not None:
            self.changed.set()

    def _release_slot(self, attempt_task: AttemptTask) -> None:
        error = None if attempt_task.cancelled() else attempt_task.exception()
        if error is not None:
            logger.error("task %s: an attempt could not be run", self._running[attempt_task].log_id, exc_info=error)
        task_after = None if attempt_task.cancelled() or error is not None else attempt_task.result()
        # If there were free slots, no task waits for this one, and a task that has ended needs none.
        if task_after is None or not task_after.is_terminal or self._is_contended(self._running[attempt_task].tool):
            self.changed.set()
        task_id = self._running.pop(attempt_task).id
        if self._by_task.get(task_id) is attempt_task:
            del self._by_task[task_id]
        self._notify_changed()

    def _is_contended(self, tool: Tool) -> bool:
        """Return whether a task may be waiting for a slot that is about to be freed."""
        return any(tool in group.tools and self.free_slots(group) <= 0 for group in self.groups)

    def wanted_event(self, tool: str) -> asyncio.Event:
        """Return an event that is set while another task could use the slot of an attempt of this tool."""
        return self._wanted.get(tool) or self._wanted.setdefault(tool, asyncio.Event())

    def request_slots(self, tools: Collection[str]) -> None:
        """Ask the waiting attempts of these tools to park, and withdraw the request from all other tools."""
        for tool, event in self._wanted.items():
            if tool in tools:
                event.set()
            else:
                event.clear()

    def request_all_slots(self) -> None:
        self.request_slots(self._wanted)

    @contextmanager
    def count_waiting(self, tool: str) -> Generator[None]:
        self.waiting[tool] += 1
        self.changed.set()
        try:
            yield
        finally:
            self.waiting[tool] -= 1
