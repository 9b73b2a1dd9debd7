"""`tools/call` for tools whose calls become tasks: a task is made first, and then the caller gets what it can take.

Every call runs as a durable task. A caller that declared the extension gets the task, or at once its result if that
comes within the tool's `inline_for`. Any other waits for the result. What such a call asks meanwhile is asked in
rounds: the answer is that input is required, with the task's id as the state that the caller brings back.
"""

import logging
from collections.abc import Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Any, cast

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, InputRequiredResult

from raincheck.core.content import View
from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.records import Task
from raincheck.engine.timing import first_of
from raincheck.errors import RaincheckError
from raincheck.server.asking import Asking
from raincheck.server.callers import describe_caller
from raincheck.server.g1_middleware import check_may_hand_out, hand_out
from raincheck.server.leaving import Leaving
from raincheck.server.refusals import invalid_params, missing_capability, refusing
from raincheck.server.requests import asks_for_task, is_modern, knows_tasks, speaks_g1
from raincheck.server.results import as_json, describe_failure, text_of
from raincheck.server.rounds import resolve
from raincheck.server.running import UNSEEN_FOR, Running
from raincheck.server.sdk import AnyContext
from raincheck.server.served import ServedTool, ServedTools
from raincheck.server.strangers import Strangers
from raincheck.server.waiting import Waiting, is_next_round
from raincheck.server.watching import Watching
from raincheck.server.workplace import Workplace
from raincheck.wire import codes, g1, g2

logger = logging.getLogger(__name__)


class ToolCalls:
    """Serves the calls of tools."""

    def __init__(
        self, running: Running, tools: ServedTools, workplace: Workplace, watching: Watching, asking: Asking
    ) -> None:
        self._running = running
        self._tools = tools
        self._workplace = workplace
        self._leaving = Leaving(running)
        self._waiting = Waiting(running, watching, asking, self._leaving)
        self._strangers = Strangers(running.options.clock, running.options.settings.quota)

    async def __call__(self, ctx: AnyContext, params: CallToolRequestParams) -> HandlerResult:
        tool = self._tools.find(params.name)
        if tool is None:
            if asks_for_task(ctx):
                raise _not_as_a_task(params.name, is_there=self._tools.has(params.name))
            assert self._tools.handler is not None  # noqa: S101 - set before this serves anything
            return await self._tools.handler(ctx, params)
        owner = await self._running.owner_of(ctx)
        with refusing(ctx, owner):
            answer = await self._serve(ctx, tool, params, owner)
        # Not a refusal, whatever it is: what came of the task.
        return self._running.answer(answer) if isinstance(answer, View) else answer

    async def _serve(
        self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner
    ) -> HandlerResult | View:
        """What to answer, or the task if it has ended."""
        if is_next_round(ctx, params):
            return await self._waiting.go_on(ctx, tool, params, owner)
        self._check_tier(ctx, tool)
        refused = await self._prepare(ctx, tool, params)
        if refused is not None:
            return refused
        sees_it = _takes_tasks(ctx) and tool.policy.task != "forbidden"
        task = await self._create(ctx, tool, params, owner, sees_it=sees_it)
        if not sees_it:
            return await self._waiting.wait(ctx, task)
        if asks_for_task(ctx):
            return self._hand_out_as_asked(task, tool)
        with self._leaving.while_wanted(task):
            return await self._hand_out(task, tool)

    def _check_tier(self, ctx: AnyContext, tool: ServedTool) -> None:
        if asks_for_task(ctx):
            if tool.policy.task == "forbidden":
                raise _not_as_a_task(tool.name)
            check_may_hand_out()
        if tool.policy.task != "required" or _takes_tasks(ctx):
            return
        if is_modern(ctx):
            raise missing_capability()
        how = "call it with params.task" if speaks_g1(ctx) else f"callers of {ctx.protocol_version} can't take those"
        raise MCPError(codes.METHOD_NOT_FOUND, f"tool {tool.name!r} runs only as a task: {how}")

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
        except Exception as error:
            failure = describe_failure(tool.name, error)
            if asks_for_task(ctx):
                # Whoever asks for a task reads a task or an error, and nothing else.
                raise invalid_params(text_of(as_json(failure))) from error
            return failure
        return found if isinstance(found, InputRequiredResult) else None

    async def _create(
        self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner, *, sees_it: bool
    ) -> Task:
        arguments = cast("Mapping[str, Json]", params.arguments or {})
        key = tool.policy.key_of(tool.name, arguments, cast("Mapping[str, Any] | None", ctx.meta), owner)
        # What was answered before the task: its body finds it again by playing the last round once more.
        dumped = params.model_dump(
            by_alias=True, mode="json", exclude_none=True, include={"input_responses", "request_state"}
        )
        self._strangers.admit(owner)
        creating = self._running.engine.submit(
            tool.name,
            arguments,
            owner=owner,
            caller=describe_caller(ctx, cast("Json", dumped)),
            idempotency_key=key,
            ttl=_ttl_of(ctx, params),
            timeout=None if sees_it else UNSEEN_FOR,
        )
        return await self._leaving.create(creating)

    def _hand_out_as_asked(self, task: Task, tool: ServedTool) -> HandlerResult:
        """The task, to a caller of 2025-11-25 that asked for one. It is never answered otherwise."""
        poll_ms, now = self._running.pace.interval_ms(task), self._running.options.clock.now()
        meanwhile = tool.policy.meanwhile or f"{tool.name} has begun and goes on in the background: its result follows."
        answer = g1.create_result(task, poll_ms=poll_ms, now=now, meanwhile=meanwhile)
        return hand_out(task, cast("dict[str, Any]", answer))

    async def _hand_out(self, task: Task, tool: ServedTool) -> HandlerResult | View:
        """The task, unless it ends within the tool's window."""
        engine, clock = self._running.engine, self._running.options.clock
        if tool.policy.inline_for:
            last: View | None = None

            async def see() -> None:
                nonlocal last
                try:
                    async with aclosing(engine.follow(task.id, owner=task.owner)) as seen:
                        async for last in seen:
                            if last.inputs:
                                return
                except RaincheckError as error:
                    logger.warning("task %s can't be followed, and is handed out: %s", task.shown_id, error)

            await first_of(see(), clock.sleep(tool.policy.inline_for))
            # Whatever became of it meanwhile, it exists: its caller gets it as it was seen last.
            if last is not None and last.task.is_terminal:
                return last
            task = task if last is None else last.task
        return cast("dict[str, Any]", g2.create_result(task, poll_ms=self._running.pace.interval_ms(task)))


def _takes_tasks(ctx: AnyContext) -> bool:
    return knows_tasks(ctx) or asks_for_task(ctx)


def _ttl_of(ctx: AnyContext, params: CallToolRequestParams) -> timedelta | None:
    """For how long the caller asks to have the task kept. As long as there is time, if it asks for more."""
    if not asks_for_task(ctx) or params.task is None or params.task.ttl is None:
        return None
    return timedelta(milliseconds=min(params.task.ttl, timedelta.max // timedelta(milliseconds=1)))


def _not_as_a_task(name: str, *, is_there: bool = True) -> MCPError:
    if not is_there:
        return invalid_params(f"there is no tool {name!r}")
    return MCPError(codes.METHOD_NOT_FOUND, f"tool {name!r} can't be called as a task: call it without params.task")
