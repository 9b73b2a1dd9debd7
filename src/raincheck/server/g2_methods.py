"""The methods of the extension of 2026-07-28: `tasks/get`, `tasks/update`, `tasks/cancel`."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from mcp.server.context import HandlerResult
from mcp_types import RequestParams

from raincheck.core.payload import Json
from raincheck.errors import CancelRefused, IllegalTransition
from raincheck.server import audit
from raincheck.server.refusals import Refusing, invalid_params
from raincheck.server.requests import routed_task
from raincheck.server.running import Running
from raincheck.server.sdk import AnyContext
from raincheck.server.showing import Showing
from raincheck.wire import g2


class G2Methods:
    """Answers for tasks, to whoever owns them."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._showing = Showing(running)

    async def get(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """How the task is."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            task_id = routed_task(ctx)
            with self._running.pace.polling(owner, task_id):
                view = await self._running.engine.view(task_id, owner=owner)
            return await self._showing.translate(view, g2.get_result)

    async def update(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """Take answers to open questions. Those to questions that are not open are ignored, whatever they are."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            task_id = routed_task(ctx)
            answers = (ctx.params or {}).get("inputResponses")
            if not isinstance(answers, Mapping):
                raise invalid_params(f"{ctx.method} needs params.inputResponses, an object of answers by their keys")
            # One that has ended asks nothing any more, so there is nothing in it that is not ignored.
            with suppress(IllegalTransition):
                await self._running.engine.answer(task_id, cast("Mapping[str, Json]", answers), owner=owner)
        return cast("dict[str, Any]", g2.ack())

    async def cancel(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """Stop the task, unless it has ended: a caller need not know which of the two was first."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            task_id = routed_task(ctx)
            try:
                task = await self._running.engine.cancel(task_id, owner=owner)
                audit.note("cancelled", owner, task_id=task.id, tool=task.tool.name)
            except IllegalTransition:
                pass
            except CancelRefused as refused:
                return cast("dict[str, Any]", g2.not_cancelled(refused))
        return cast("dict[str, Any]", g2.ack())
