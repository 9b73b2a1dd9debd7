"""Wait for a task on behalf of a caller that did not receive it, and send the caller its input requests.

The wait is bounded for callers that can continue later, because hosts time out a call after about a minute. Such a
caller then receives text on how to continue.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, cast

from mcp_types import CallToolRequestParams

from raincheck._async import wait_first
from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.records import Task, View
from raincheck.errors import IllegalTransition, RaincheckError
from raincheck.server.caller import declares_tasks, is_modern
from raincheck.server.disconnect import run_while_connected
from raincheck.server.errors import invalid_params
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.shared_follower import SharedFollower
from raincheck.server.tools.results import COMPLETE
from raincheck.server.v2025.elicitation import ElicitationBroker, can_be_asked
from raincheck.wire import v2026

logger = logging.getLogger(__name__)

QUESTION_BATCH_DELAY = 0.05
"""Seconds in which to collect questions that belong together."""

STATE_PREFIX = "raincheck:"
"""Prefix of the request state of a call that waits for its task. The task's id follows."""


def is_next_round(ctx: AnyContext, params: CallToolRequestParams) -> bool:
    """Return whether a call brings answers to the input requests of a task."""
    return is_modern(ctx) and (params.request_state or "").startswith(STATE_PREFIX)


class CallWaiter:
    """Waits for tasks to end, on behalf of their callers."""

    def __init__(self, runtime: ServerRuntime, follower: SharedFollower, broker: ElicitationBroker) -> None:
        self._runtime = runtime
        self._follower = follower
        self._broker = broker

    async def wait(self, ctx: AnyContext, task: Task, seconds: float | None) -> dict[str, Any] | View:
        """Return the task at its end, or its input requests. After `seconds`, if any, return how to continue with it.

        Raises:
            CallerDisconnected: no caller waits for the task any more.
        """
        is_asked = False
        if is_modern(ctx):
            view = await self.wait_for_end_or_input(ctx, task, seconds)
        else:
            # Asked concurrently, so that the end of the task is seen while the user thinks about an answer.
            async with self._broker.ask_while_waiting(ctx, task, names_task=False) as elicitation:
                view = await run_while_connected(
                    ctx, self._runtime.options.clock, self.wait_for_end_or_input(ctx, task, seconds)
                )
                if not view.task.is_terminal:
                    elicitation.abandon(is_connected=True)
                    is_asked = self._broker.is_asking(ctx, view)
        if view.task.is_terminal:
            return view
        if view.inputs and is_modern(ctx) and all(can_be_asked(ctx, request) for request in view.inputs):
            return _input_required(view)
        return self.describe_unfinished(view, is_asked=is_asked)

    async def accept_answers(self, params: CallToolRequestParams, owner: Owner, tool: str | None = None) -> Task:
        """Store the answers that the next round of a call brings, perhaps not all of them. Return the call's task.

        Raises:
            MCPError: the round belongs to a call of another tool.
        """
        task_id = (params.request_state or "").removeprefix(STATE_PREFIX)
        view = await self._runtime.engine.view(task_id, owner=owner)
        if tool is not None and view.task.tool.name != tool:
            raise invalid_params(f"this requestState belongs to a call of another tool, not of {tool!r}")
        dumped = params.model_dump(by_alias=True, mode="json", exclude_none=True, include={"input_responses"})
        answers = cast("Mapping[str, Json]", dumped.get("inputResponses", {}))
        # The task may have ended since, or this round may be a repetition: then the task's end is the answer.
        with suppress(IllegalTransition):
            await self._runtime.engine.answer(task_id, answers, owner=owner)
        return view.task

    def describe_unfinished(self, view: View, *, is_asked: bool = False) -> dict[str, Any]:
        """Return the answer to a caller whose task has not ended. `is_asked`: the user has the question already."""
        runtime = self._runtime
        assert runtime.fallback_messages is not None  # noqa: S101 - without it, calls wait for the end
        answer = runtime.fallback_messages.unfinished(
            view, runtime.options.clock.now(), runtime.estimate_remaining(view.task), user_was_asked=is_asked
        )
        return {**answer, **COMPLETE}

    async def wait_for_end_or_input(self, ctx: AnyContext, task: Task, seconds: float | None) -> View:
        """Return the task when it ends, when it asks what can't be asked during the wait, or after `seconds`."""
        if task.is_terminal:
            # The same call was made before.
            return await self._runtime.engine.view(task.id, owner=task.owner)
        last = View(task, None, ())

        async def watch(follow: AsyncGenerator[View]) -> None:
            nonlocal last
            reported = -1.0
            async with aclosing(follow) as views:
                async for last in views:
                    reported = await _report_progress(ctx, last.task, reported)
                    if last.inputs and not _is_asked_during_wait(ctx, last):
                        if not declares_tasks(ctx):
                            # Branches of a body that ask concurrently are asked together.
                            await self._runtime.options.clock.sleep(QUESTION_BATCH_DELAY)
                            last = await self._runtime.engine.view(task.id, owner=task.owner)
                            if not last.inputs and not last.task.is_terminal:
                                # Another caller has answered meanwhile: the task resumes, and the wait continues.
                                continue
                        return

        try:
            await self._follow_for(ctx, task, seconds, watch)
        except RaincheckError as error:
            if seconds is None:
                raise
            # Whatever happened to it meanwhile, the task exists: its caller continues with the last view.
            logger.warning("could not follow task %s: %s", task.log_id, error)
        return last

    async def _follow_for(
        self,
        ctx: AnyContext,
        task: Task,
        seconds: float | None,
        watch: Callable[[AsyncGenerator[View]], Coroutine[Any, Any, None]],
    ) -> None:
        """Follow the task, for at most `seconds`."""
        engine = self._runtime.engine
        if is_modern(ctx):
            # No other caller follows it, and a task that has just started need not be read. Its open questions must be.
            last_seen = None if task.open_inputs else task
            await watch(engine.follow(task.id, owner=task.owner, last_seen=last_seen, timeout=seconds))
            return
        # A caller that is asked during the wait follows the task twice, so both share what is read.
        watching = asyncio.ensure_future(watch(self._follower.follow(task)))
        if seconds is None:
            await watching
            return
        await wait_first(watching, self._runtime.options.clock.sleep(seconds))
        if watching.done() and not watching.cancelled():
            watching.result()


async def _report_progress(ctx: AnyContext, task: Task, reported: float) -> float:
    """Report progress, upwards only, to a caller that will not get its task. Return what was last reported."""
    progress = None if task.is_terminal or declares_tasks(ctx) else task.progress
    if progress is None or progress.done <= reported:
        return reported
    await ctx.session.report_progress(progress.done, progress.total, task.status_message)
    return progress.done


def _is_asked_during_wait(ctx: AnyContext, view: View) -> bool:
    """Return whether any of the task's input requests is sent to its caller during the wait."""
    return not is_modern(ctx) and any(can_be_asked(ctx, request) for request in view.inputs)


def _input_required(view: View) -> dict[str, Any]:
    """Return the input requests of the task, for the next round."""
    requests = dict(v2026.input_requests(view))
    return {"resultType": "input_required", "inputRequests": requests, "requestState": STATE_PREFIX + view.task.id}
