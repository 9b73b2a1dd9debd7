"""`tools/call` for tools whose calls become tasks: a task is made first, and then the caller gets what it can take.

Every call runs as a durable task. A caller that declared the extension gets the task, or at once its result if that
comes within the tool's `inline_for`. Any other waits for the result. What such a call asks meanwhile is asked in
rounds: the answer is that input is required, with the task's id as the state that the caller brings back.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, InputRequiredResult

from raincheck.core.content import View
from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.records import Task
from raincheck.engine import Engine
from raincheck.engine.timing import first_of
from raincheck.server.callers import describe_caller
from raincheck.server.questions import ask_directly
from raincheck.server.refusals import invalid_params, missing_capability, refusing
from raincheck.server.requests import is_modern, knows_tasks
from raincheck.server.results import describe_failure
from raincheck.server.rounds import resolve
from raincheck.server.running import Running
from raincheck.server.sdk import AnyContext
from raincheck.server.served import ServedTool, ServedTools
from raincheck.server.workplace import Workplace
from raincheck.wire import codes, g2

logger = logging.getLogger(__name__)

MOMENT = 0.05
"""Seconds in which questions that belong together are asked."""

STATE = "raincheck:"
"""Begins the state of a call that waits for its task: the task's id follows."""


class ToolCalls:
    """Serves the calls of tools."""

    def __init__(self, running: Running, tools: ServedTools, workplace: Workplace) -> None:
        self._running = running
        self._tools = tools
        self._workplace = workplace
        self._jobs: set[asyncio.Future[Task]] = set()

    async def __call__(self, ctx: AnyContext, params: CallToolRequestParams) -> HandlerResult:
        tool = self._tools.find(params.name)
        if tool is None:
            assert self._tools.handler is not None  # noqa: S101 - set before this serves anything
            return await self._tools.handler(ctx, params)
        owner = self._running.owner_of(ctx)
        with refusing(ctx, owner):
            answer = await self._serve(ctx, tool, params, owner)
        # Not a refusal, whatever it is: what came of the task.
        return self._running.answer(answer) if isinstance(answer, View) else answer

    async def _serve(
        self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner
    ) -> HandlerResult | View:
        """What to answer, or the task if it has ended."""
        if is_modern(ctx) and (params.request_state or "").startswith(STATE):
            return await self._go_on(ctx, tool, params, owner)
        self._check_tier(ctx, tool)
        refused = await self._prepare(ctx, tool, params)
        if refused is not None:
            return refused
        task = await self._create(ctx, tool, params, owner)
        if knows_tasks(ctx) and tool.policy.task != "forbidden":
            return await self._hand_out(task, tool)
        return await self._wait(ctx, task, tool)

    def _check_tier(self, ctx: AnyContext, tool: ServedTool) -> None:
        if tool.policy.task != "required" or knows_tasks(ctx):
            return
        if is_modern(ctx):
            raise missing_capability()
        raise MCPError(codes.METHOD_NOT_FOUND, f"tool {tool.name!r} runs only as a task, which this version has not")

    async def _prepare(self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams) -> HandlerResult:
        """What to answer instead of making a task: that the arguments are wrong, or that input is required first."""
        if tool.sdk is None:
            return None
        try:
            values = tool.sdk.fn_metadata.validate_arguments(params.arguments or {})
            # Before 2026 there are no rounds: whatever has to be asked is asked by the task.
            if not tool.sdk.resolved_params or not is_modern(ctx):
                return None
            found = await resolve(tool.sdk, values, self._workplace.context_of(ctx, params))
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - the author's code: told as the SDK would tell it
            return describe_failure(tool.name, error)
        return found if isinstance(found, InputRequiredResult) else None

    async def _create(self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner) -> Task:
        arguments = cast("Mapping[str, Json]", params.arguments or {})
        key = tool.policy.key_of(tool.name, arguments, cast("Mapping[str, Any] | None", ctx.meta), owner)
        # What was answered before the task: its body finds it again by playing the last round once more.
        dumped = params.model_dump(
            by_alias=True, mode="json", exclude_none=True, include={"input_responses", "request_state"}
        )
        return await self._running.engine.submit(
            tool.name,
            arguments,
            owner=owner,
            caller=describe_caller(ctx, cast("Json", dumped)),
            idempotency_key=key,
        )

    async def _hand_out(self, task: Task, tool: ServedTool) -> HandlerResult | View:
        """The task, unless it ends within the tool's window."""
        engine, clock = self._running.engine, self._running.options.clock
        if tool.policy.inline_for:
            ended = engine.wait(task.id, owner=task.owner, until=lambda one: bool(one.open_inputs))
            await first_of(ended, clock.sleep(tool.policy.inline_for))
            view = await engine.view(task.id, owner=task.owner)
            if view.task.is_terminal:
                return view
            task = view.task
        return cast("dict[str, Any]", g2.create_result(task, poll_ms=self._running.pace.interval_ms(task)))

    async def _wait(self, ctx: AnyContext, task: Task, tool: ServedTool) -> HandlerResult | View:
        """The end of the task, for a caller that does not see it.

        If the caller leaves, the task goes on, unless nobody could ever get at it.
        """
        engine = self._running.engine
        try:
            return await self._follow(ctx, task, engine)
        except asyncio.CancelledError:
            if tool.policy.task == "forbidden":
                self._give_up(task, engine)
            raise

    def _give_up(self, task: Task, engine: Engine) -> None:
        # In a job of its own: whoever waited has been cancelled, and can't wait for this either.
        cancelling = engine.cancel(task.id, owner=task.owner, reason="its caller left")
        job = asyncio.ensure_future(cancelling)
        self._jobs.add(job)
        job.add_done_callback(self._forget)

    def _forget(self, job: "asyncio.Future[Task]") -> None:
        self._jobs.discard(job)
        # It ended first, or its store is away: then it ends by itself.
        if not job.cancelled() and job.exception() is not None:
            logger.info("a call whose caller left was not cancelled: %s", job.exception())

    async def _follow(self, ctx: AnyContext, task: Task, engine: Engine) -> HandlerResult | View:
        asked: set[str] = set()
        reported = -1.0
        async with aclosing(engine.follow(task.id, owner=task.owner)) as views:
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
                    return self._input_required(await engine.view(task.id, owner=task.owner))
                if view.inputs:
                    await ask_directly(ctx, view, engine, asked)
        raise AssertionError("a task is followed to its end")

    def _input_required(self, view: View) -> HandlerResult | View:
        """What the task asks, for the next round; the task, if it has ended meanwhile."""
        if view.task.is_terminal:
            return view
        requests = cast("dict[str, Any]", g2.detailed(view, poll_ms=1)).get("inputRequests", {})
        return {"resultType": "input_required", "inputRequests": requests, "requestState": STATE + view.task.id}

    async def _go_on(
        self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner
    ) -> HandlerResult | View:
        """The next round of a call that waits for its task: it brings answers, perhaps not all of them."""
        task_id = (params.request_state or "").removeprefix(STATE)
        view = await self._running.engine.view(task_id, owner=owner)
        if view.task.tool.name != tool.name:
            raise invalid_params(f"this state belongs to a call of another tool than {tool.name!r}")
        answers = params.model_dump(by_alias=True, mode="json", exclude_none=True, include={"input_responses"})
        await self._running.engine.answer(task_id, answers.get("inputResponses", {}), owner=owner)
        return await self._wait(ctx, view.task, tool)
