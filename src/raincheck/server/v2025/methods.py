"""The methods of 2025-11-25: `tasks/get`, `tasks/result`, `tasks/list`, `tasks/cancel`."""

from contextlib import aclosing
from functools import partial
from typing import Any, cast

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import RequestParams

from raincheck.core.records import Task, View
from raincheck.errors import IllegalTransition
from raincheck.server import audit
from raincheck.server.caller import named_task
from raincheck.server.disconnect import while_there
from raincheck.server.errors import Refusing, invalid_params
from raincheck.server.render import Showing
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.shared_follower import Watching
from raincheck.server.stream_limits import RESULTS, Places
from raincheck.server.v2025.cursors import read_cursor, write_cursor
from raincheck.server.v2025.elicitation import Asking
from raincheck.server.v2025.notifications import Pushing
from raincheck.wire import errors, v2025

PAGE = 100
"""Tasks in one page of a list."""


class G1Methods:
    """Answers for tasks, to whoever owns them."""

    def __init__(self, running: Running, watching: Watching, asking: Asking, pushing: Pushing) -> None:
        self._running = running
        self._showing = Showing(running)
        self._watching = watching
        self._asking = asking
        self._pushing = pushing
        self._places = Places(RESULTS)

    async def get(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """How the task is."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            task_id = named_task(ctx)
            with self._running.pace.polling(owner, task_id):
                view = await self._running.engine.view(task_id, owner=owner)
            tell = partial(v2025.detailed, now=self._running.options.clock.now())
            return await self._showing.translate(view, tell, has_result=False)

    async def result(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """What the call itself would have returned, as soon as it is there. Who waits is asked what the task asks."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            view = await self._running.engine.view(named_task(ctx), owner=owner)
            if not view.task.is_terminal:
                with self._places.taken(owner, 1):
                    view = await self._wait(ctx, view.task)
        return await self._answer(view)

    async def list(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """The caller's tasks, newest first, a page at a time."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            if not owner.may_list:
                raise MCPError(errors.METHOD_NOT_FOUND, "this server can't tell its callers apart, so it lists nothing")
            engine, clock, key = self._running.engine, self._running.options.clock, self._running.cursor_key
            cursor = (ctx.params or {}).get("cursor")
            after = None if cursor is None else read_cursor(cursor, owner, engine.namespace, key)
            page = await engine.list_tasks(owner=owner, after=after, limit=PAGE)
            now, pace = clock.now(), self._running.pace
            tasks = [v2025.task_fields(task, poll_ms=pace.interval_ms(task), now=now) for task in page.tasks]
            more = None if page.next is None else write_cursor(page.next, owner, engine.namespace, key)
            return cast("dict[str, Any]", v2025.page(tasks, more))

    async def cancel(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """Stop the task, and show it as it is then."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            task_id = named_task(ctx)
            try:
                task = await self._running.engine.cancel(task_id, owner=owner)
            except IllegalTransition as error:
                ended = v2025.status_of(await self._running.engine.task(task_id, owner=owner))
                raise invalid_params(f"task {task_id!r} can't be cancelled: it is {ended} already") from error
            audit.note("cancelled", owner, task_id=task.id, tool=task.tool.name)
            poll_ms = self._running.pace.interval_ms(task)
            return cast("dict[str, Any]", v2025.shown(task, poll_ms=poll_ms, now=self._running.options.clock.now()))

    async def _wait(self, ctx: AnyContext, task: Task) -> View:
        async with self._asking.beside(ctx, task, is_seen=True):
            return await while_there(ctx, self._running.options.clock, self._follow(ctx, task))

    async def _follow(self, ctx: AnyContext, task: Task) -> View:
        async with self._pushing.through(ctx, task), aclosing(self._watching.follow(task)) as views:
            async for view in views:
                if view.task.is_terminal:
                    return view
        raise AssertionError("a task is followed to its end")

    async def _answer(self, view: View) -> HandlerResult:
        """The result of a task that has ended, which says whose it is.

        Raises:
            MCPError: it ended with this error.
        """
        if view.task.status == "cancelled":
            await self._showing.note(view)
            raise MCPError(*v2025.cancelled(view.task))
        return cast("dict[str, Any]", v2025.result(view, await self._showing.answer(view)))
