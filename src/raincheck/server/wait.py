"""Callers that were not handed their task: they wait for its end, and are asked what it asks.

For how long they wait is bounded where they can go on later, since hosts give up on a call after a minute or so. Then
they are told how, in words.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, cast

from mcp_types import CallToolRequestParams

from raincheck._async import first_of
from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.records import Task, View
from raincheck.errors import IllegalTransition, RaincheckError
from raincheck.server.caller import is_modern, knows_tasks
from raincheck.server.disconnect import while_there
from raincheck.server.errors import invalid_params
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.shared_follower import Watching
from raincheck.server.tools.results import COMPLETE
from raincheck.server.v2025.elicitation import Asking, can_be_asked
from raincheck.wire import v2026

logger = logging.getLogger(__name__)

MOMENT = 0.05
"""Seconds in which questions that belong together are asked."""

STATE = "raincheck:"
"""Begins the state of a call that waits for its task: the task's id follows."""


def is_next_round(ctx: AnyContext, params: CallToolRequestParams) -> bool:
    """Whether a call brings answers to what a task asked."""
    return is_modern(ctx) and (params.request_state or "").startswith(STATE)


class Waiting:
    """Waits with callers for the ends of their tasks."""

    def __init__(self, running: Running, watching: Watching, asking: Asking) -> None:
        self._running = running
        self._watching = watching
        self._asking = asking

    async def wait(self, ctx: AnyContext, task: Task, seconds: float | None) -> dict[str, Any] | View:
        """The end of the task, or what it asks first. After so many seconds, if any: how to go on with it.

        Raises:
            CallerGone: nobody waits for it any more.
        """
        is_asked = False
        if is_modern(ctx):
            view = await self.see(ctx, task, seconds)
        else:
            # Asked beside, so that the end of the task is seen while somebody thinks about an answer.
            async with self._asking.beside(ctx, task, is_seen=False) as talk:
                view = await while_there(ctx, self._running.options.clock, self.see(ctx, task, seconds))
                if not view.task.is_terminal:
                    talk.leave(is_there=True)
                    is_asked = self._asking.is_asking(ctx, view)
        if view.task.is_terminal:
            return view
        if view.inputs and is_modern(ctx) and all(can_be_asked(ctx, one) for one in view.inputs):
            return _input_required(view)
        return self.tell(view, is_asked=is_asked)

    async def answered(self, params: CallToolRequestParams, owner: Owner, tool: str | None = None) -> Task:
        """The task of a call whose next round this is: it brings answers, perhaps not all of them.

        Raises:
            MCPError: it is a round of something else.
        """
        task_id = (params.request_state or "").removeprefix(STATE)
        view = await self._running.engine.view(task_id, owner=owner)
        if tool is not None and view.task.tool.name != tool:
            raise invalid_params(f"this state belongs to a call of another tool than {tool!r}")
        dumped = params.model_dump(by_alias=True, mode="json", exclude_none=True, include={"input_responses"})
        answers = cast("Mapping[str, Json]", dumped.get("inputResponses", {}))
        # It may have ended since, or this round may come a second time: then its end is the answer.
        with suppress(IllegalTransition):
            await self._running.engine.answer(task_id, answers, owner=owner)
        return view.task

    def tell(self, view: View, *, is_asked: bool = False) -> dict[str, Any]:
        """What a caller is told whose task has not ended. It may be asked what that asks just now."""
        running = self._running
        assert running.telling is not None  # noqa: S101 - else nobody waits for less than the end
        told = running.telling.unfinished(
            view, running.options.clock.now(), running.left_of(view.task), is_asked=is_asked
        )
        return {**told, **COMPLETE}

    async def see(self, ctx: AnyContext, task: Task, seconds: float | None) -> View:
        """The task as it is at its end, when it asks what can't be asked meanwhile, or after so many seconds."""
        if task.is_terminal:
            # The same call has been made before.
            return await self._running.engine.view(task.id, owner=task.owner)
        last = View(task, None, ())

        async def look(follow: AsyncGenerator[View]) -> None:
            nonlocal last
            reported = -1.0
            async with aclosing(follow) as views:
                async for last in views:
                    reported = await _report(ctx, last.task, reported)
                    if last.inputs and not _is_asked_meanwhile(ctx, last):
                        if not knows_tasks(ctx):
                            # Branches of a body that ask side by side are asked together.
                            await self._running.options.clock.sleep(MOMENT)
                            last = await self._running.engine.view(task.id, owner=task.owner)
                            if not last.inputs and not last.task.is_terminal:
                                # Somebody else has answered meanwhile: it goes on, and so does the wait.
                                continue
                        return

        try:
            await self._in_time(ctx, task, seconds, look)
        except RaincheckError as error:
            if seconds is None:
                raise
            # Whatever became of it meanwhile, it exists: its caller goes on with it as it was seen last.
            logger.warning("task %s can't be followed: %s", task.shown_id, error)
        return last

    async def _in_time(
        self,
        ctx: AnyContext,
        task: Task,
        seconds: float | None,
        look: Callable[[AsyncGenerator[View]], Coroutine[Any, Any, None]],
    ) -> None:
        """Follow the task, for so many seconds at most."""
        engine = self._running.engine
        if is_modern(ctx):
            # Nobody else follows it, and of one that has just begun nothing need be read. What it asks is.
            known = None if task.open_inputs else task
            await look(engine.follow(task.id, owner=task.owner, known=known, within=seconds))
            return
        # Whoever is asked meanwhile follows it twice, so they share what is read.
        looking = asyncio.ensure_future(look(self._watching.follow(task)))
        if seconds is None:
            await looking
            return
        await first_of(looking, self._running.options.clock.sleep(seconds))
        if looking.done() and not looking.cancelled():
            looking.result()


async def _report(ctx: AnyContext, task: Task, reported: float) -> float:
    """Tell a caller that is not going to have its task how far that is, upwards only. Returns how far it was told."""
    progress = None if task.is_terminal or knows_tasks(ctx) else task.progress
    if progress is None or progress.done <= reported:
        return reported
    await ctx.session.report_progress(progress.done, progress.total, task.status_message)
    return progress.done


def _is_asked_meanwhile(ctx: AnyContext, view: View) -> bool:
    """Whether something of what the task asks is put to its caller while it waits."""
    return not is_modern(ctx) and any(can_be_asked(ctx, one) for one in view.inputs)


def _input_required(view: View) -> dict[str, Any]:
    """What the task asks, for the next round."""
    requests = dict(v2026.input_requests(view))
    return {"resultType": "input_required", "inputRequests": requests, "requestState": STATE + view.task.id}
