"""What owners are shown of their tasks, and what that means for the task: somebody has seen its end."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from raincheck.core.records import View
from raincheck.server import audit
from raincheck.server.errors import Reading
from raincheck.server.runtime import Running
from raincheck.server.tools.policy import is_joined_by_arguments
from raincheck.server.tools.results import call_result
from raincheck.wire import v2026

RELEASED_WITHIN = 1.0
"""Seconds in which whoever is to see the end of a task waits until the same call is done anew."""


class Showing:
    """Shows tasks to their owners."""

    def __init__(self, running: Running) -> None:
        self._running = running

    async def translate(
        self, view: View, tell: Callable[..., object] = v2026.detailed, *, has_result: bool = True
    ) -> dict[str, Any]:
        """The task as its owner is about to be shown it, in the words of `tell`, which may be without its result.

        Raises:
            MCPError: what is kept of it can't be read, which is not its owner's fault.
        """
        await self.note(view, has_result=has_result)
        with Reading(view):
            return cast("dict[str, Any]", tell(view, poll_ms=self._running.pace.interval_ms(view.task)))

    async def answer(self, view: View) -> dict[str, Any]:
        """The result of a task that has ended, as the call itself would have had it.

        Raises:
            MCPError: it has none.
        """
        await self.note(view)
        with Reading(view):
            return call_result(view)

    async def note(self, view: View, *, has_result: bool = True) -> None:
        """The view is about to be shown to its owner."""
        task = view.task
        if not task.is_terminal:
            return
        audit.note("retrieved", task.owner, task_id=task.id, tool=task.tool.name)
        if has_result and is_joined_by_arguments(task):
            # First, so that whoever makes the same call from now on, anywhere, has it done anew.
            releasing = asyncio.ensure_future(self._running.engine.release_key(task))
            self._running.hold(releasing)
            await asyncio.wait([releasing], timeout=RELEASED_WITHIN)
