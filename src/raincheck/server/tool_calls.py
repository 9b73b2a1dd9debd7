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
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, InputRequiredResult
from pydantic import ValidationError

from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.records import Task
from raincheck.engine.timing import first_of
from raincheck.server.callers import describe_caller
from raincheck.server.questions import ask_directly
from raincheck.server.refusals import invalid_params, missing_capability, refusing
from raincheck.server.requests import is_modern, knows_tasks
from raincheck.server.results import describe_bad_arguments, error_result
from raincheck.server.rounds import resolve
from raincheck.server.running import Running
from raincheck.server.sdk import AnyContext, bus_of
from raincheck.server.served import ServedTool, ServedTools
from raincheck.server.workplace import Workplace
from raincheck.wire import codes, g2

logger = logging.getLogger(__name__)

LAST_ROUND = frozenset({"input_responses", "request_state"})

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
            if is_modern(ctx) and (params.request_state or "").startswith(STATE):
                return await self._go_on(ctx, params, owner)
            self._check_tier(ctx, tool)
            refused = await self._prepare(ctx, tool, params)
            if refused is not None:
                return refused
            task = await self._create(ctx, tool, params, owner)
            if knows_tasks(ctx) and tool.policy.task != "forbidden":
                return await self._hand_out(task, tool)
            return await self._wait(ctx, task, is_hidden=tool.policy.task == "forbidden")

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
        except ValidationError as error:
            return describe_bad_arguments(tool.name, error)
        server = self._workplace.server
        # Before 2026 there are no rounds: whatever has to be asked is asked by the task.
        if server is None or not tool.sdk.resolved_params or not is_modern(ctx):
            return None
        context = Context(request_context=ctx, mcp_server=server, input_params=params, subscriptions=bus_of(server))
        try:
            found = await resolve(tool.sdk, values, context)
        except SdkToolError as error:
            return error_result(f"Error executing tool {tool.name}: {error}")
        return found if isinstance(found, InputRequiredResult) else None

    async def _create(self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner) -> Task:
        arguments = cast("Mapping[str, Json]", params.arguments or {})
        # What was answered before the task: its body finds it again by playing the last round once more.
        dumped = params.model_dump(
            by_alias=True, mode="json", exclude_none=True, include={"input_responses", "request_state"}
        )
        return await self._running.engine.submit(
            tool.name,
            arguments,
            owner=owner,
            caller=describe_caller(ctx, cast("Json", dumped)),
            idempotency_key=tool.policy.key_of(arguments, cast("Mapping[str, Any] | None", ctx.meta)),
        )

    async def _hand_out(self, task: Task, tool: ServedTool) -> HandlerResult:
        """The task, unless it ends within the tool's window."""
        engine, clock = self._running.engine, self._running.options.clock
        if tool.policy.inline_for:
            ended = engine.wait(task.id, owner=task.owner, until=lambda one: bool(one.open_inputs))
            await first_of(ended, clock.sleep(tool.policy.inline_for))
            view = await engine.view(task.id, owner=task.owner)
            if view.task.is_terminal:
                return self._running.answer(view)
            task = view.task
        return cast("dict[str, Any]", g2.create_result(task, poll_ms=self._running.pace.interval_ms(task)))

    async def _wait(self, ctx: AnyContext, task: Task, *, is_hidden: bool = False) -> HandlerResult:
        """The result, for a caller that does not see the task.

        If the caller leaves, the task goes on, unless nobody could ever get at it.
        """
        try:
            return await self._follow(ctx, task)
        except asyncio.CancelledError:
            if is_hidden:
                self._give_up(task)
            raise

    def _give_up(self, task: Task) -> None:
        # In a job of its own: whoever waited has been cancelled, and can't wait for this either.
        cancelling = self._running.engine.cancel(task.id, owner=task.owner, reason="its caller left")
        job = asyncio.ensure_future(cancelling)
        self._jobs.add(job)
        job.add_done_callback(self._forget)

    def _forget(self, job: "asyncio.Future[Task]") -> None:
        self._jobs.discard(job)
        # It ended first, or its store is away: then it ends by itself.
        if not job.cancelled() and job.exception() is not None:
            logger.info("a call whose caller left was not cancelled: %s", job.exception())

    async def _follow(self, ctx: AnyContext, task: Task) -> HandlerResult:
        asked: set[str] = set()
        reported = -1.0
        async with aclosing(self._running.engine.follow(task.id, owner=task.owner)) as views:
            async for view in views:
                if view.task.is_terminal:
                    return self._running.answer(view)
                progress = view.task.progress
                if progress is not None and progress.done > reported:
                    reported = progress.done
                    await ctx.session.report_progress(progress.done, progress.total, view.task.status_message)
                if not view.inputs:
                    continue
                if is_modern(ctx):
                    requests = cast("dict[str, Any]", g2.detailed(view, poll_ms=1))["inputRequests"]
                    return {"resultType": "input_required", "inputRequests": requests, "requestState": STATE + task.id}
                await ask_directly(ctx, view, self._running.engine, asked)
        raise AssertionError("a task is followed to its end")

    async def _go_on(self, ctx: AnyContext, params: CallToolRequestParams, owner: Owner) -> HandlerResult:
        """The next round of a call that waits for its task: it brings answers, perhaps not all of them."""
        task_id = (params.request_state or "").removeprefix(STATE)
        view = await self._running.engine.view(task_id, owner=owner)
        if view.task.tool.name != params.name:
            raise invalid_params(f"this state belongs to a call of another tool than {params.name!r}")
        answers = params.model_dump(by_alias=True, mode="json", exclude_none=True, include={"input_responses"})
        await self._running.engine.answer(task_id, answers.get("inputResponses", {}), owner=owner)
        return await self._wait(ctx, view.task)
