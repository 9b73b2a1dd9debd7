"""Render tasks for their owners, and record that an owner has retrieved a terminal task."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from raincheck.core.records import View
from raincheck.server import audit
from raincheck.server.errors import StoredDataErrorMapping
from raincheck.server.runtime import ServerRuntime
from raincheck.server.tools.policy import is_joined_by_arguments
from raincheck.server.tools.results import call_result
from raincheck.wire import v2026

RELEASE_TIMEOUT = 1.0
"""Most seconds that a response with a result waits for the release of its call's key."""


class TaskRenderer:
    """Renders tasks for their owners."""

    def __init__(self, runtime: ServerRuntime) -> None:
        self._runtime = runtime

    async def render(
        self, view: View, to_wire: Callable[..., object] = v2026.detailed_task, *, has_result: bool = True
    ) -> dict[str, Any]:
        """Render a task for its owner with `to_wire`, which may omit the result, and record the retrieval.

        Raises:
            MCPError: the stored data can't be read, which is not the owner's fault.
        """
        await self.record_retrieval(view, has_result=has_result)
        with StoredDataErrorMapping(view):
            return cast("dict[str, Any]", to_wire(view, poll_ms=self._runtime.poll_policy.interval_ms(view.task)))

    async def render_result(self, view: View) -> dict[str, Any]:
        """Render the result of a terminal task, as the call itself would have returned it.

        Raises:
            MCPError: the task has no result.
        """
        await self.record_retrieval(view)
        with StoredDataErrorMapping(view):
            return call_result(view)

    async def record_retrieval(self, view: View, *, has_result: bool = True) -> None:
        """Record that the view is about to be sent to its owner."""
        task = view.task
        if not task.is_terminal:
            return
        audit.log_event("retrieved", task.owner, task_id=task.id, tool=task.tool.name)
        if has_result and is_joined_by_arguments(task):
            # First release the key, so that the same call runs again from now on, in any process.
            releasing = asyncio.ensure_future(self._runtime.engine.release_key(task))
            self._runtime.finish_before_stop(releasing)
            await asyncio.wait([releasing], timeout=RELEASE_TIMEOUT)
