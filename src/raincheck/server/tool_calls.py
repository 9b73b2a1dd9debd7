"""Serve `tools/call` for tools whose calls become tasks: create a task, then return what the caller accepts.

Every call runs as a durable task. A caller that declared the extension gets the task, or its result if that comes soon
enough. A caller that requested a task gets it. Any other caller waits for the result for a while, and then receives
text on how to continue.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, cast

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, InputRequiredResult

from raincheck.core.owner import Owner
from raincheck.core.records import InputKind, Task, View
from raincheck.core.values import Json
from raincheck.server.caller import Caller, OwnerResolver, describe_caller
from raincheck.server.disconnect import AbandonedCalls
from raincheck.server.errors import ErrorMapping, invalid_params, missing_capability
from raincheck.server.fallback.tools import FallbackToolCalls
from raincheck.server.limits import AnonymousRateLimit
from raincheck.server.middleware import check_can_hand_off, hand_off_task
from raincheck.server.results import TaskRenderer, as_json, describe_failure, text_of
from raincheck.server.runtime import UNSEEN_TASK_TIMEOUT, ServerRuntime
from raincheck.server.sdk_compat import AnyContext, tool_of
from raincheck.server.tools import policy
from raincheck.server.tools.registry import ServedTool, ToolRegistry
from raincheck.server.tools.task_session import SdkContextFactory, run_resolvers
from raincheck.server.wait import CallWaiter
from raincheck.server.wait_policy import WaitPolicy, choose_fallback_wait, choose_inline_wait
from raincheck.wire import errors, v2025, v2026


@dataclass(frozen=True, slots=True, eq=False)
class ToolCalls:
    """Serves `tools/call`."""

    runtime: ServerRuntime
    owners: OwnerResolver
    tools: ToolRegistry
    sdk_contexts: SdkContextFactory
    wait_policy: WaitPolicy
    waiter: CallWaiter
    renderer: TaskRenderer
    fallback_calls: FallbackToolCalls | None
    abandoned_calls: AbandonedCalls
    anonymous_limit: AnonymousRateLimit

    async def __call__(self, ctx: AnyContext, params: CallToolRequestParams) -> HandlerResult:
        caller, fallback_calls = Caller.of(ctx), self.fallback_calls
        # A tool of the server's own takes precedence over a fallback tool.
        if (
            fallback_calls is not None
            and fallback_calls.serves(params.name)
            and tool_of(self.sdk_contexts.server, params.name) is None
        ):
            if caller.wants_task:
                raise _not_callable_as_task(params.name)
            owner = await self.owners.owner_of(ctx)
            with ErrorMapping(ctx, owner):
                return await fallback_calls(caller, params, owner)
        tool = self.tools.find(params.name)
        if tool is None:
            if caller.wants_task:
                raise _not_callable_as_task(params.name, exists=self.tools.has(params.name))
            assert self.tools.handler is not None  # noqa: S101 - set before this serves anything
            return await self.tools.handler(ctx, params)
        owner = await self.owners.owner_of(ctx)
        with ErrorMapping(ctx, owner):
            answer = await self._serve(caller, tool, params, owner)
        # Not a refusal, even if it is an error: it is the outcome of the task.
        return await self.renderer.render_result(answer) if isinstance(answer, View) else answer

    async def _serve(
        self, caller: Caller, tool: ServedTool, params: CallToolRequestParams, owner: Owner
    ) -> HandlerResult | View:
        """Return the answer to a call, or the view of its task if that has ended."""
        if caller.is_modern and v2026.is_next_round(params.request_state):
            task = await self.waiter.accept_answers(params, owner, tool.name)
        else:
            self._check_mode(caller, tool)
            refused = await self._prepare(caller, tool, params)
            if refused is not None:
                return refused
            task = await self._create(caller, tool, params, owner)
        if caller.wants_task:
            return self._answer_requested_task(task, tool)
        if caller.takes_tasks and tool.policy.mode != "forbidden":
            return await self.abandoned_calls.wait_or_cancel(task, self._answer_inline_or_task(caller, task, tool))
        return await self.abandoned_calls.wait_or_cancel(
            task, self.waiter.wait(caller, task, self._fallback_wait(caller, tool))
        )

    def _fallback_wait(self, caller: Caller, tool: ServedTool) -> float | None:
        """Return the seconds until a caller without tasks receives text on how to continue; None if it waits.

        A caller that could have requested a task, and did not, waits for the result: it expects no other answer.
        """
        longest = self.runtime.options.fallback_wait
        if longest is None or tool.policy.mode == "forbidden" or caller.uses_tasks:
            return None
        return choose_fallback_wait(tool.policy, self.wait_policy.estimate_duration(tool.name), longest).seconds

    def _check_mode(self, caller: Caller, tool: ServedTool) -> None:
        if caller.wants_task:
            if tool.policy.mode == "forbidden":
                raise _not_callable_as_task(tool.name)
            check_can_hand_off()
        if tool.policy.mode != "required" or caller.accepts_task:
            return
        if caller.is_modern:
            raise missing_capability()
        remedy = (
            "call it with params.task"
            if caller.is_v2025
            else f"use a later protocol version, because {caller.ctx.protocol_version} has no tasks"
        )
        raise MCPError(errors.METHOD_NOT_FOUND, f"tool {tool.name!r} runs only as a task: {remedy}")

    async def _prepare(self, caller: Caller, tool: ServedTool, params: CallToolRequestParams) -> HandlerResult:
        """Validate a call. Return an answer instead of a task if arguments are invalid or input is required first."""
        if tool.sdk is None:
            return None
        try:
            values = tool.sdk.fn_metadata.validate_arguments(params.arguments or {})
            # Before 2026-07-28 there are no rounds, and some callers can't be asked: then the task asks.
            if not tool.sdk.resolved_params or not caller.is_modern or self._is_asked_by_text(caller, tool):
                return None
            resolved = await run_resolvers(tool.sdk, values, self.sdk_contexts.context_for_request(caller.ctx, params))
        except MCPError:
            raise
        except Exception as error:
            failure = describe_failure(tool.name, error)
            if caller.wants_task:
                # A caller that requests a task accepts only a task or an error.
                raise invalid_params(text_of(as_json(failure))) from error
            return failure
        return resolved if isinstance(resolved, InputRequiredResult) else None

    def _is_asked_by_text(self, caller: Caller, tool: ServedTool) -> bool:
        """Return whether the task's questions reach the caller as text, which it answers by calling a fallback tool."""
        has_fallback = self._fallback_wait(caller, tool) is not None
        return has_fallback and InputKind.ELICITATION not in caller.input_capabilities

    async def _create(self, caller: Caller, tool: ServedTool, params: CallToolRequestParams, owner: Owner) -> Task:
        arguments = cast("Mapping[str, Json]", params.arguments or {})
        key = tool.policy.idempotency_key(
            tool.name, arguments, cast("Mapping[str, Any] | None", caller.ctx.meta), owner
        )
        # The user's answers are not among the arguments, so calls with answers may look the same and differ.
        if key is None and tool.is_idempotent and owner.may_list and params.input_responses is None:
            key = policy.arguments_key(tool.name, arguments)
        gets_no_task = not caller.accepts_task or tool.policy.mode == "forbidden"
        has_fallback = gets_no_task and self._fallback_wait(caller, tool) is not None
        self.anonymous_limit.admit(owner, caller.host)
        submit = partial(
            self.runtime.engine.submit,
            tool.name,
            arguments,
            owner=owner,
            caller=describe_caller(caller, _answers_in(params), has_fallback=has_fallback),
            idempotency_key=key,
            ttl=_ttl_of(caller, params),
            timeout=UNSEEN_TASK_TIMEOUT if gets_no_task and not has_fallback else None,
            # They were validated before: the SDK's own error answers arguments that don't fit.
            validate=False,
        )
        return await self.abandoned_calls.wait_for_creation(
            submit() if key is None else asyncio.ensure_future(self._join(submit))
        )

    async def _join(self, submit: Callable[[], Awaitable[Task]]) -> Task:
        """Create a task, or join the one that has the key. A stale one is of no use, and loses the key."""
        task = await submit()
        if policy.is_stale(task, self.runtime.clock.now()):
            await self.runtime.engine.release_key(task)
            task = await submit()
        return task

    def _answer_requested_task(self, task: Task, tool: ServedTool) -> HandlerResult:
        """Return the task to a caller of 2025-11-25 that requested one. Such a caller never gets another answer."""
        poll_ms, now = self.wait_policy.poll_interval_ms(task), self.runtime.clock.now()
        immediate_text = (
            tool.policy.immediate_response
            or f"{tool.name} has started and keeps running in the background. Its result follows."
        )
        answer = v2025.create_result(task, poll_ms=poll_ms, now=now, immediate_text=immediate_text)
        return hand_off_task(task, cast("dict[str, Any]", answer))

    async def _answer_inline_or_task(self, caller: Caller, task: Task, tool: ServedTool) -> HandlerResult | View:
        """Return the view of a task that ends soon enough, and else the task."""
        seconds = tool.policy.inline_for
        if seconds is None:
            seconds = choose_inline_wait(tool.policy, self.wait_policy.estimate_duration(tool.name)).seconds
        view = await self.waiter.wait_for_end_or_input(caller, task, seconds) if seconds else View(task, None, ())
        if seconds and view.task.is_terminal:
            return view
        return cast(
            "dict[str, Any]", v2026.create_result(view.task, poll_ms=self.wait_policy.poll_interval_ms(view.task))
        )


def _answers_in(params: CallToolRequestParams) -> Json:
    """Return the answers from before the task. Its body finds them again by replaying the last round."""
    if params.input_responses is None and params.request_state is None:
        return None
    dumped = params.model_dump(
        by_alias=True, mode="json", exclude_none=True, include={"input_responses", "request_state"}
    )
    return cast("Json", dumped)


def _ttl_of(caller: Caller, params: CallToolRequestParams) -> timedelta | None:
    """Return how long the caller asks to store the task, capped at the longest duration that can be represented."""
    if not caller.wants_task or params.task is None or params.task.ttl is None:
        return None
    return timedelta(milliseconds=min(params.task.ttl, timedelta.max // timedelta(milliseconds=1)))


def _not_callable_as_task(name: str, *, exists: bool = True) -> MCPError:
    if not exists:
        return invalid_params(f"there is no tool {name!r}")
    return MCPError(errors.METHOD_NOT_FOUND, f"tool {name!r} can't be called as a task: call it without params.task")
