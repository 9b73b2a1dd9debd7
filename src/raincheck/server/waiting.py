"""Callers that do not see their task: they wait for its end, and are asked what it asks."""

from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import cast

from mcp.server.context import HandlerResult
from mcp_types import CallToolRequestParams

from raincheck.core.content import View
from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.records import Task
from raincheck.errors import IllegalTransition
from raincheck.server.asking import Asking
from raincheck.server.leaving import Leaving
from raincheck.server.refusals import invalid_params
from raincheck.server.requests import is_modern
from raincheck.server.running import Running
from raincheck.server.sdk import AnyContext
from raincheck.server.served import ServedTool
from raincheck.server.watching import Watching
from raincheck.wire import g2

MOMENT = 0.05
"""Seconds in which questions that belong together are asked."""

STATE = "raincheck:"
"""Begins the state of a call that waits for its task: the task's id follows."""


def is_next_round(ctx: AnyContext, params: CallToolRequestParams) -> bool:
    """Whether a call brings answers to what a task asked."""
    return is_modern(ctx) and (params.request_state or "").startswith(STATE)


class Waiting:
    """Waits with callers for the ends of their tasks."""

    def __init__(self, running: Running, watching: Watching, asking: Asking, leaving: Leaving) -> None:
        self._running = running
        self._watching = watching
        self._asking = asking
        self._leaving = leaving

    async def wait(self, ctx: AnyContext, task: Task) -> HandlerResult | View:
        """The end of the task, or what it asks first."""
        with self._leaving.while_wanted(task):
            if is_modern(ctx):
                return await self._follow(ctx, task)
            # Asked beside, so that the end of the task is seen while somebody thinks about an answer.
            async with self._asking.beside(ctx, task, is_seen=False):
                return await self._follow(ctx, task)

    async def go_on(
        self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner
    ) -> HandlerResult | View:
        """The next round of a call that waits for its task: it brings answers, perhaps not all of them.

        Raises:
            MCPError: it is a round of something else.
        """
        task_id = (params.request_state or "").removeprefix(STATE)
        view = await self._running.engine.view(task_id, owner=owner)
        if view.task.tool.name != tool.name:
            raise invalid_params(f"this state belongs to a call of another tool than {tool.name!r}")
        dumped = params.model_dump(by_alias=True, mode="json", exclude_none=True, include={"input_responses"})
        answers = cast("Mapping[str, Json]", dumped.get("inputResponses", {}))
        # It may have ended since, or this round may come a second time: then its end is the answer.
        with suppress(IllegalTransition):
            await self._running.engine.answer(task_id, answers, owner=owner)
        return await self.wait(ctx, view.task)

    async def _follow(self, ctx: AnyContext, task: Task) -> HandlerResult | View:
        reported = -1.0
        async with aclosing(self._watching.follow(task)) as views:
            async for view in views:
                if view.task.is_terminal:
                    return view
                progress = view.task.progress
                if progress is not None and progress.done > reported:
                    reported = progress.done
                    await ctx.session.report_progress(progress.done, progress.total, view.task.status_message)
                if view.inputs and is_modern(ctx):
                    # Branches of a body that ask side by side are asked in one round.
                    await self._running.options.clock.sleep(MOMENT)
                    return _input_required(await self._running.engine.view(task.id, owner=task.owner))
        raise AssertionError("a task is followed to its end")


def _input_required(view: View) -> HandlerResult | View:
    """What the task asks, for the next round; the task, if it has ended meanwhile."""
    if view.task.is_terminal:
        return view
    requests = dict(g2.input_requests(view))
    return {"resultType": "input_required", "inputRequests": requests, "requestState": STATE + view.task.id}
