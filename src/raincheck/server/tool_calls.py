"""Serve `tools/call` for tools whose calls become tasks: create a task, then return what the caller accepts.

Every call runs as a durable task. A caller that declared the extension gets the task, or its result if that comes soon
enough. A caller that requested a task gets it. Any other caller waits for the result for a while, and then receives
text on how to continue.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, cast

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, InputRequiredResult

from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.records import InputKind, Task, View
from raincheck.server.caller import Generation, asks_for_task, declares_tasks, generation_of, is_modern, is_v2025
from raincheck.server.disconnect import AbandonedCalls
from raincheck.server.errors import AuditedErrorMapping, invalid_params, missing_capability
from raincheck.server.fallback.tools import FallbackToolCalls
from raincheck.server.identity import AnonymousRateLimit, declared_capabilities, describe_caller
from raincheck.server.render import TaskRenderer
from raincheck.server.runtime import UNSEEN_TASK_TIMEOUT, ServerRuntime
from raincheck.server.sdk_compat import AnyContext, tool_of
from raincheck.server.tools import policy
from raincheck.server.tools.registry import ServedTool, ToolRegistry
from raincheck.server.tools.results import as_json, describe_failure, text_of
from raincheck.server.tools.task_session import SdkContextFactory, run_resolvers
from raincheck.server.v2025.middleware import check_can_hand_off, hand_off_task
from raincheck.server.wait import CallWaiter, is_next_round
from raincheck.server.wait_policy import choose_fallback_wait, choose_inline_wait
from raincheck.wire import errors, v2025, v2026


class ToolCalls:
    """Serves `tools/call`."""

    def __init__(
        self, runtime: ServerRuntime, tools: ToolRegistry, sdk_contexts: SdkContextFactory, waiter: CallWaiter
    ) -> None:
        self._runtime = runtime
        self._tools = tools
        self._sdk_contexts = sdk_contexts
        self._waiter = waiter
        self._renderer = TaskRenderer(runtime)
        self._fallback_calls = (
            None if runtime.fallback_messages is None else FallbackToolCalls(runtime, runtime.fallback_messages, waiter)
        )
        self._abandoned_calls = AbandonedCalls(runtime)
        self._anonymous_limit = AnonymousRateLimit(runtime.options.clock, runtime.options.settings.quota)

    async def __call__(self, ctx: AnyContext, params: CallToolRequestParams) -> HandlerResult:
        # A tool of the server's own takes precedence over a fallback tool.
        if (
            self._fallback_calls
            and self._fallback_calls.has(params.name)
            and tool_of(self._sdk_contexts.server, params.name) is None
        ):
            if asks_for_task(ctx):
                raise _not_callable_as_task(params.name)
            owner = await self._runtime.owner_of(ctx)
            with AuditedErrorMapping(ctx, owner):
                return await self._fallback_calls(ctx, params, owner)
        tool = self._tools.find(params.name)
        if tool is None:
            if asks_for_task(ctx):
                raise _not_callable_as_task(params.name, exists=self._tools.has(params.name))
            assert self._tools.handler is not None  # noqa: S101 - set before this serves anything
            return await self._tools.handler(ctx, params)
        owner = await self._runtime.owner_of(ctx)
        with AuditedErrorMapping(ctx, owner):
            answer = await self._serve(ctx, tool, params, owner)
        # Not a refusal, even if it is an error: it is the outcome of the task.
        return await self._renderer.render_result(answer) if isinstance(answer, View) else answer

    async def _serve(
        self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner
    ) -> HandlerResult | View:
        """Return the answer to a call, or the view of its task if that has ended."""
        if is_next_round(ctx, params):
            task = await self._waiter.accept_answers(params, owner, tool.name)
        else:
            self._check_mode(ctx, tool)
            refused = await self._prepare(ctx, tool, params)
            if refused is not None:
                return refused
            task = await self._create(ctx, tool, params, owner)
        if asks_for_task(ctx):
            return self._answer_requested_task(task, tool)
        if declares_tasks(ctx) and tool.policy.mode != "forbidden":
            return await self._abandoned_calls.wait_or_cancel(task, self._answer_inline_or_task(ctx, task, tool))
        return await self._abandoned_calls.wait_or_cancel(
            task, self._waiter.wait(ctx, task, self._fallback_wait(ctx, tool))
        )

    def _fallback_wait(self, ctx: AnyContext, tool: ServedTool) -> float | None:
        """Return the seconds until a caller without tasks receives text on how to continue; None if it waits.

        A caller that could have requested a task, and did not, waits for the result: it expects no other answer.
        """
        if (
            self._runtime.fallback_messages is None
            or tool.policy.mode == "forbidden"
            or generation_of(ctx) is not Generation.FALLBACK
        ):
            return None
        return choose_fallback_wait(
            tool.policy, self._runtime.estimate_duration(tool.name), self._runtime.fallback_messages.wait
        ).seconds

    def _check_mode(self, ctx: AnyContext, tool: ServedTool) -> None:
        if asks_for_task(ctx):
            if tool.policy.mode == "forbidden":
                raise _not_callable_as_task(tool.name)
            check_can_hand_off()
        if tool.policy.mode != "required" or _accepts_tasks(ctx):
            return
        if is_modern(ctx):
            raise missing_capability()
        remedy = (
            "call it with params.task"
            if is_v2025(ctx)
            else f"use a later protocol version, because {ctx.protocol_version} has no tasks"
        )
        raise MCPError(errors.METHOD_NOT_FOUND, f"tool {tool.name!r} runs only as a task: {remedy}")

    async def _prepare(self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams) -> HandlerResult:
        """Validate a call. Return an answer instead of a task if arguments are invalid or input is required first."""
        if tool.sdk is None:
            return None
        try:
            values = tool.sdk.fn_metadata.validate_arguments(params.arguments or {})
            # Before 2026-07-28 there are no rounds, and some callers can't be asked: then the task asks.
            if not tool.sdk.resolved_params or not is_modern(ctx) or self._is_asked_by_text(ctx, tool):
                return None
            resolved = await run_resolvers(tool.sdk, values, self._sdk_contexts.context_for_request(ctx, params))
        except MCPError:
            raise
        except Exception as error:
            failure = describe_failure(tool.name, error)
            if asks_for_task(ctx):
                # A caller that requests a task accepts only a task or an error.
                raise invalid_params(text_of(as_json(failure))) from error
            return failure
        return resolved if isinstance(resolved, InputRequiredResult) else None

    def _is_asked_by_text(self, ctx: AnyContext, tool: ServedTool) -> bool:
        """Return whether the task's questions reach the caller as text, which it answers by calling a fallback tool."""
        has_fallback = self._fallback_wait(ctx, tool) is not None
        return has_fallback and InputKind.ELICITATION not in declared_capabilities(ctx.session.client_capabilities)

    async def _create(self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner) -> Task:
        arguments = cast("Mapping[str, Json]", params.arguments or {})
        key = tool.policy.idempotency_key(tool.name, arguments, cast("Mapping[str, Any] | None", ctx.meta), owner)
        # The user's answers are not among the arguments, so calls with answers may look the same and differ.
        if key is None and tool.is_idempotent and owner.may_list and params.input_responses is None:
            key = policy.arguments_key(tool.name, arguments)
        gets_no_task = not _accepts_tasks(ctx) or tool.policy.mode == "forbidden"
        has_fallback = gets_no_task and self._fallback_wait(ctx, tool) is not None
        self._anonymous_limit.admit(owner)
        submit = partial(
            self._runtime.engine.submit,
            tool.name,
            arguments,
            owner=owner,
            caller=describe_caller(ctx, _answers_in(params), has_fallback=has_fallback),
            idempotency_key=key,
            ttl=_ttl_of(ctx, params),
            timeout=UNSEEN_TASK_TIMEOUT if gets_no_task and not has_fallback else None,
            # They were validated before: the SDK's own error answers arguments that don't fit.
            validate=False,
        )
        return await self._abandoned_calls.wait_for_creation(
            submit() if key is None else asyncio.ensure_future(self._join(submit))
        )

    async def _join(self, submit: Callable[[], Awaitable[Task]]) -> Task:
        """Create a task, or join the one that has the key. A stale one is of no use, and loses the key."""
        task = await submit()
        if policy.is_stale(task, self._runtime.options.clock.now()):
            await self._runtime.engine.release_key(task)
            task = await submit()
        return task

    def _answer_requested_task(self, task: Task, tool: ServedTool) -> HandlerResult:
        """Return the task to a caller of 2025-11-25 that requested one. Such a caller never gets another answer."""
        poll_ms, now = self._runtime.poll_policy.interval_ms(task), self._runtime.options.clock.now()
        immediate_text = (
            tool.policy.immediate_response
            or f"{tool.name} has started and keeps running in the background. Its result follows."
        )
        answer = v2025.create_result(task, poll_ms=poll_ms, now=now, immediate_text=immediate_text)
        return hand_off_task(task, cast("dict[str, Any]", answer))

    async def _answer_inline_or_task(self, ctx: AnyContext, task: Task, tool: ServedTool) -> HandlerResult | View:
        """Return the view of a task that ends soon enough, and else the task."""
        seconds = tool.policy.inline_for
        if seconds is None:
            seconds = choose_inline_wait(tool.policy, self._runtime.estimate_duration(tool.name)).seconds
        view = await self._waiter.wait_for_end_or_input(ctx, task, seconds) if seconds else View(task, None, ())
        if seconds and view.task.is_terminal:
            return view
        return cast(
            "dict[str, Any]", v2026.create_result(view.task, poll_ms=self._runtime.poll_policy.interval_ms(view.task))
        )


def _accepts_tasks(ctx: AnyContext) -> bool:
    return declares_tasks(ctx) or asks_for_task(ctx)


def _answers_in(params: CallToolRequestParams) -> Json:
    """Return the answers from before the task. Its body finds them again by replaying the last round."""
    if params.input_responses is None and params.request_state is None:
        return None
    dumped = params.model_dump(
        by_alias=True, mode="json", exclude_none=True, include={"input_responses", "request_state"}
    )
    return cast("Json", dumped)


def _ttl_of(ctx: AnyContext, params: CallToolRequestParams) -> timedelta | None:
    """Return how long the caller asks to store the task, capped at the longest duration that can be represented."""
    if not asks_for_task(ctx) or params.task is None or params.task.ttl is None:
        return None
    return timedelta(milliseconds=min(params.task.ttl, timedelta.max // timedelta(milliseconds=1)))


def _not_callable_as_task(name: str, *, exists: bool = True) -> MCPError:
    if not exists:
        return invalid_params(f"there is no tool {name!r}")
    return MCPError(errors.METHOD_NOT_FOUND, f"tool {name!r} can't be called as a task: call it without params.task")
