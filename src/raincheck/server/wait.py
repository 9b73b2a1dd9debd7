"""Wait for a task on behalf of a caller that did not receive it, and send the caller its input requests.

The wait is bounded for callers that can continue later, because hosts time out a call after about a minute. Such a
caller then receives text on how to continue.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, cast

from mcp_types import CallToolRequestParams

from raincheck._async import timeout_after
from raincheck.core.owner import Owner
from raincheck.core.records import Task, View
from raincheck.core.values import Json
from raincheck.errors import IllegalTransition, RaincheckError
from raincheck.server.caller import Caller
from raincheck.server.disconnect import run_while_connected
from raincheck.server.errors import invalid_params
from raincheck.server.results import COMPLETE
from raincheck.server.runtime import ServerRuntime
from raincheck.server.v2025.elicitation import ElicitationBroker
from raincheck.server.v2025.notifications import SharedFollower
from raincheck.server.wait_policy import WaitPolicy
from raincheck.wire import v2026
from raincheck.wire.fallback_text import FallbackMessages

logger = logging.getLogger(__name__)

QUESTION_BATCH_DELAY = 0.05
"""Seconds in which to collect questions that belong together."""


@dataclass(frozen=True, slots=True, eq=False)
class CallWaiter:
    """Waits for tasks to end, on behalf of their callers."""

    runtime: ServerRuntime
    wait_policy: WaitPolicy
    follower: SharedFollower
    broker: ElicitationBroker
    messages: FallbackMessages | None

    async def wait(self, caller: Caller, task: Task, seconds: float | None) -> dict[str, Any] | View:
        """Return the task at its end, or its input requests. After `seconds`, if any, return how to continue with it.

        Raises:
            CallerDisconnected: no caller waits for the task any more.
        """
        is_asked = False
        if caller.is_modern:
            view = await self.wait_for_end_or_input(caller, task, seconds)
        else:
            # Asked concurrently, so that the end of the task is seen while the user thinks about an answer.
            async with self.broker.ask_while_waiting(caller, task, names_task=False) as elicitation:
                view = await run_while_connected(
                    caller.ctx, self.runtime.clock, self.wait_for_end_or_input(caller, task, seconds)
                )
                if not view.task.is_terminal:
                    elicitation.abandon(is_connected=True)
                    is_asked = self.broker.is_asking(caller.ctx, view)
        if view.task.is_terminal:
            return view
        if view.inputs and caller.is_modern and all(caller.can_answer(request) for request in view.inputs):
            return dict(v2026.input_required(view))
        return self.describe_unfinished(view, is_asked=is_asked)

    async def accept_answers(self, params: CallToolRequestParams, owner: Owner, tool: str | None = None) -> Task:
        """Store the answers that the next round of a call brings, perhaps not all of them. Return the call's task.

        Raises:
            MCPError: the round belongs to a call of another tool.
        """
        task_id = (params.request_state or "").removeprefix(v2026.STATE_PREFIX)
        view = await self.runtime.engine.view(task_id, owner=owner)
        if tool is not None and view.task.tool.name != tool:
            raise invalid_params(f"this requestState belongs to a call of another tool, not of {tool!r}")
        dumped = params.model_dump(by_alias=True, mode="json", exclude_none=True, include={"input_responses"})
        answers = cast("Mapping[str, Json]", dumped.get("inputResponses", {}))
        # The task may have ended since, or this round may be a repetition: then the task's end is the answer.
        with suppress(IllegalTransition):
            await self.runtime.engine.answer(task_id, answers, owner=owner)
        return view.task

    def describe_unfinished(self, view: View, *, is_asked: bool = False) -> dict[str, Any]:
        """Return the answer to a caller whose task has not ended. `is_asked`: the user has the question already."""
        assert self.messages is not None  # noqa: S101 - without it, calls wait for the end
        seconds_left = self.wait_policy.estimate_remaining(view.task)
        answer = self.messages.unfinished(view, self.runtime.clock.now(), seconds_left, user_was_asked=is_asked)
        return {**answer, **COMPLETE}

    async def wait_for_end_or_input(self, caller: Caller, task: Task, seconds: float | None) -> View:
        """Return the task when it ends, when it asks what can't be asked during the wait, or after `seconds`."""
        if task.is_terminal:
            # The same call was made before.
            return await self.runtime.engine.view(task.id, owner=task.owner)
        last, reported = View(task, None, ()), -1.0
        timeout: asyncio.Timeout | None = None
        try:
            async with (
                timeout_after(self.runtime.clock, None if caller.is_modern else seconds) as timeout,
                aclosing(self._follow(caller, task, seconds)) as views,
            ):
                async for last in views:
                    reported = await _report_progress(caller, last.task, reported)
                    is_asked = not caller.is_modern and any(map(caller.can_answer, last.inputs))
                    if is_asked or not last.inputs:
                        continue
                    if caller.takes_tasks:
                        return last
                    # Branches of a body that ask concurrently are asked together.
                    await self.runtime.clock.sleep(QUESTION_BATCH_DELAY)
                    last = await self.runtime.engine.view(task.id, owner=task.owner)
                    if last.inputs or last.task.is_terminal:
                        return last
                    # Another caller has answered meanwhile: the task resumes, and the wait continues.
        except TimeoutError:
            if timeout is None or not timeout.expired():
                raise
        except RaincheckError as error:
            if seconds is None:
                raise
            # Whatever happened to it meanwhile, the task exists: its caller continues with the last view.
            logger.warning("could not follow task %s: %s", task.log_id, error)
        return last

    def _follow(self, caller: Caller, task: Task, seconds: float | None) -> AsyncGenerator[View]:
        if not caller.is_modern:
            # A caller that is asked during the wait follows the task twice, so both share what is read.
            return self.follower.follow(task)
        # No other caller follows it, and a task that has just started need not be read. Its open questions must be.
        last_seen = None if task.open_inputs else task
        return self.runtime.engine.follow(task.id, owner=task.owner, last_seen=last_seen, timeout=seconds)


async def _report_progress(caller: Caller, task: Task, reported: float) -> float:
    """Report progress, upwards only, to a caller that will not get its task. Return what was last reported."""
    progress = None if task.is_terminal or caller.takes_tasks else task.progress
    if progress is None or progress.done <= reported:
        return reported
    await caller.ctx.session.report_progress(progress.done, progress.total, task.status_message)
    return progress.done
