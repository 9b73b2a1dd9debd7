"""Serve the methods of 2025-11-25: `tasks/get`, `tasks/result`, `tasks/list`, `tasks/cancel`."""

from contextlib import aclosing
from functools import partial
from typing import Any, cast

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import RequestParams

from raincheck.core.records import Task, View
from raincheck.errors import IllegalTransition
from raincheck.server import audit
from raincheck.server.caller import task_id_of
from raincheck.server.disconnect import run_while_connected
from raincheck.server.errors import AuditedErrorMapping, invalid_params
from raincheck.server.render import TaskRenderer
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.shared_follower import SharedFollower
from raincheck.server.stream_limits import RESULT_LIMITS, StreamSlots
from raincheck.server.v2025.cursors import read_cursor, write_cursor
from raincheck.server.v2025.elicitation import ElicitationBroker
from raincheck.server.v2025.notifications import StatusNotifier
from raincheck.wire import errors, v2025

PAGE_SIZE = 100
"""Tasks in one page of a list."""


class V2025Methods:
    """Serves the methods for tasks to the owners of the tasks."""

    def __init__(
        self, runtime: ServerRuntime, follower: SharedFollower, broker: ElicitationBroker, notifier: StatusNotifier
    ) -> None:
        self._runtime = runtime
        self._renderer = TaskRenderer(runtime)
        self._follower = follower
        self._broker = broker
        self._notifier = notifier
        self._slots = StreamSlots(RESULT_LIMITS)

    async def get(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """Return the current task."""
        owner = await self._runtime.owner_of(ctx)
        with AuditedErrorMapping(ctx, owner):
            task_id = task_id_of(ctx)
            with self._runtime.poll_policy.track_poll(owner, task_id):
                view = await self._runtime.engine.view(task_id, owner=owner)
            build_result = partial(v2025.get_result, now=self._runtime.options.clock.now())
            return await self._renderer.render(view, build_result, has_result=False)

    async def result(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """Return what the call itself would have returned, once the task has ended.

        A caller that waits receives the input requests of the task.
        """
        owner = await self._runtime.owner_of(ctx)
        with AuditedErrorMapping(ctx, owner):
            view = await self._runtime.engine.view(task_id_of(ctx), owner=owner)
            if not view.task.is_terminal:
                with self._slots.acquire(owner, 1):
                    view = await self._wait(ctx, view.task)
        return await self._answer(view)

    async def list(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """Return the caller's tasks, newest first, a page at a time."""
        owner = await self._runtime.owner_of(ctx)
        with AuditedErrorMapping(ctx, owner):
            if not owner.may_list:
                raise MCPError(
                    errors.METHOD_NOT_FOUND,
                    "tasks/list is not available because this server can't tell its callers apart: use tasks/get",
                )
            engine, clock, key = self._runtime.engine, self._runtime.options.clock, self._runtime.cursor_key
            cursor = (ctx.params or {}).get("cursor")
            after = None if cursor is None else read_cursor(cursor, owner, engine.namespace, key)
            page = await engine.list_tasks(owner=owner, after=after, limit=PAGE_SIZE)
            now, poll_policy = clock.now(), self._runtime.poll_policy
            tasks = [v2025.task_fields(task, poll_ms=poll_policy.interval_ms(task), now=now) for task in page.tasks]
            next_cursor = None if page.next is None else write_cursor(page.next, owner, engine.namespace, key)
            return cast("dict[str, Any]", v2025.list_result(tasks, next_cursor))

    async def cancel(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """Cancel the task, and return its new state."""
        owner = await self._runtime.owner_of(ctx)
        with AuditedErrorMapping(ctx, owner):
            task_id = task_id_of(ctx)
            try:
                task = await self._runtime.engine.cancel(task_id, owner=owner)
            except IllegalTransition as error:
                status = v2025.status_of(await self._runtime.engine.task(task_id, owner=owner))
                raise invalid_params(f"task {task_id!r} can't be cancelled: its status is already {status}") from error
            audit.log_event("cancelled", owner, task_id=task.id, tool=task.tool.name)
            poll_ms = self._runtime.poll_policy.interval_ms(task)
            return cast(
                "dict[str, Any]", v2025.task_result(task, poll_ms=poll_ms, now=self._runtime.options.clock.now())
            )

    async def _wait(self, ctx: AnyContext, task: Task) -> View:
        async with self._broker.ask_while_waiting(ctx, task, names_task=True):
            return await run_while_connected(ctx, self._runtime.options.clock, self._follow(ctx, task))

    async def _follow(self, ctx: AnyContext, task: Task) -> View:
        async with self._notifier.via_request_stream(ctx, task), aclosing(self._follower.follow(task)) as views:
            async for view in views:
                if view.task.is_terminal:
                    return view
        raise AssertionError("the follower stopped before the task ended")

    async def _answer(self, view: View) -> HandlerResult:
        """Return the result of a terminal task, with a reference to the task.

        Raises:
            MCPError: the task ended with this error.
        """
        if view.task.status == "cancelled":
            await self._renderer.record_retrieval(view)
            raise MCPError(*v2025.cancelled_error(view.task))
        return cast("dict[str, Any]", v2025.call_result(view, await self._renderer.render_result(view)))
