"""`tools/call` for tools whose calls become tasks: a task is made first, and then the caller gets what it can take.

Every call runs as a durable task. A caller that declared the extension gets the task, or its result if that comes soon
enough. One that asked for a task gets it. Any other waits for the result, for a while, and is told how to go on.
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
from raincheck.server.caller import Tier, asks_for_task, is_modern, knows_tasks, speaks_g1, tier_of
from raincheck.server.disconnect import Leaving
from raincheck.server.errors import Refusing, invalid_params, missing_capability
from raincheck.server.fallback.tools import PlainCalls
from raincheck.server.identity import Strangers, declared_capabilities, describe_caller
from raincheck.server.render import Showing
from raincheck.server.runtime import UNSEEN_FOR, Running
from raincheck.server.sdk_compat import AnyContext, tool_of
from raincheck.server.tools import policy
from raincheck.server.tools.registry import ServedTool, ServedTools
from raincheck.server.tools.results import as_json, describe_failure, text_of
from raincheck.server.tools.task_session import Workplace, resolve
from raincheck.server.v2025.middleware import check_may_hand_out, hand_out
from raincheck.server.wait import Waiting, is_next_round
from raincheck.server.wait_policy import choose_inline, choose_plain
from raincheck.wire import errors, v2025, v2026


class ToolCalls:
    """Serves the calls of tools."""

    def __init__(self, running: Running, tools: ServedTools, workplace: Workplace, waiting: Waiting) -> None:
        self._running = running
        self._tools = tools
        self._workplace = workplace
        self._waiting = waiting
        self._showing = Showing(running)
        self._plain = None if running.telling is None else PlainCalls(running, running.telling, waiting)
        self._leaving = Leaving(running)
        self._strangers = Strangers(running.options.clock, running.options.settings.quota)

    async def __call__(self, ctx: AnyContext, params: CallToolRequestParams) -> HandlerResult:
        # A tool of the server's own wins over ours.
        if self._plain and self._plain.has(params.name) and tool_of(self._workplace.server, params.name) is None:
            if asks_for_task(ctx):
                raise _not_as_a_task(params.name)
            owner = await self._running.owner_of(ctx)
            with Refusing(ctx, owner):
                return await self._plain(ctx, params, owner)
        tool = self._tools.find(params.name)
        if tool is None:
            if asks_for_task(ctx):
                raise _not_as_a_task(params.name, is_there=self._tools.has(params.name))
            assert self._tools.handler is not None  # noqa: S101 - set before this serves anything
            return await self._tools.handler(ctx, params)
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            answer = await self._serve(ctx, tool, params, owner)
        # Not a refusal, whatever it is: what came of the task.
        return await self._showing.answer(answer) if isinstance(answer, View) else answer

    async def _serve(
        self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner
    ) -> HandlerResult | View:
        """What to answer, or the task if it has ended."""
        if is_next_round(ctx, params):
            task = await self._waiting.answered(params, owner, tool.name)
        else:
            self._check_tier(ctx, tool)
            refused = await self._prepare(ctx, tool, params)
            if refused is not None:
                return refused
            task = await self._create(ctx, tool, params, owner)
        if asks_for_task(ctx):
            return self._hand_out_as_asked(task, tool)
        if knows_tasks(ctx) and tool.policy.mode != "forbidden":
            return await self._leaving.while_wanted(task, self._hand_out(ctx, task, tool))
        return await self._leaving.while_wanted(task, self._waiting.wait(ctx, task, self._plain_wait(ctx, tool)))

    def _plain_wait(self, ctx: AnyContext, tool: ServedTool) -> float | None:
        """Seconds after which a caller without tasks is told how to go on; None if it waits for the result.

        One that could have asked for a task, and did not, waits: it was not told what else to expect.
        """
        if self._running.telling is None or tool.policy.mode == "forbidden" or tier_of(ctx) is not Tier.PLAIN:
            return None
        return choose_plain(tool.policy, self._running.known(tool.name), self._running.telling.wait).seconds

    def _check_tier(self, ctx: AnyContext, tool: ServedTool) -> None:
        if asks_for_task(ctx):
            if tool.policy.mode == "forbidden":
                raise _not_as_a_task(tool.name)
            check_may_hand_out()
        if tool.policy.mode != "required" or _takes_tasks(ctx):
            return
        if is_modern(ctx):
            raise missing_capability()
        how = "call it with params.task" if speaks_g1(ctx) else f"callers of {ctx.protocol_version} can't take those"
        raise MCPError(errors.METHOD_NOT_FOUND, f"tool {tool.name!r} runs only as a task: {how}")

    async def _prepare(self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams) -> HandlerResult:
        """What to answer instead of making a task: that the arguments are wrong, or that input is required first."""
        if tool.sdk is None:
            return None
        try:
            values = tool.sdk.fn_metadata.validate_arguments(params.arguments or {})
            # Before 2026 there are no rounds, and some callers can't be asked: then the task asks.
            if not tool.sdk.resolved_params or not is_modern(ctx) or self._is_asked_in_words(ctx, tool):
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

    def _is_asked_in_words(self, ctx: AnyContext, tool: ServedTool) -> bool:
        goes_on = self._plain_wait(ctx, tool) is not None
        return goes_on and InputKind.ELICITATION not in declared_capabilities(ctx.session.client_capabilities)

    async def _create(self, ctx: AnyContext, tool: ServedTool, params: CallToolRequestParams, owner: Owner) -> Task:
        arguments = cast("Mapping[str, Json]", params.arguments or {})
        key = tool.policy.key_of(tool.name, arguments, cast("Mapping[str, Any] | None", ctx.meta), owner)
        # What the user answered first is not among the arguments, so such calls may look the same and not be.
        if key is None and tool.is_idempotent and owner.may_list and params.input_responses is None:
            key = policy.key_of(tool.name, arguments)
        is_plain = not _takes_tasks(ctx) or tool.policy.mode == "forbidden"
        goes_on = is_plain and self._plain_wait(ctx, tool) is not None
        self._strangers.admit(owner)
        submit = partial(
            self._running.engine.submit,
            tool.name,
            arguments,
            owner=owner,
            caller=describe_caller(ctx, _answers_in(params), in_words=goes_on),
            idempotency_key=key,
            ttl=_ttl_of(ctx, params),
            timeout=UNSEEN_FOR if is_plain and not goes_on else None,
            # They were, before: what does not fit is answered as the SDK answers it.
            checks=False,
        )
        return await self._leaving.create(submit() if key is None else asyncio.ensure_future(self._join(submit)))

    async def _join(self, submit: Callable[[], Awaitable[Task]]) -> Task:
        """The task that has the key, unless its end is of no use to anybody."""
        task = await submit()
        if policy.is_of_no_use(task, self._running.options.clock.now()):
            await self._running.engine.release_key(task)
            task = await submit()
        return task

    def _hand_out_as_asked(self, task: Task, tool: ServedTool) -> HandlerResult:
        """The task, to a caller of 2025-11-25 that asked for one. It is never answered otherwise."""
        poll_ms, now = self._running.pace.interval_ms(task), self._running.options.clock.now()
        meanwhile = tool.policy.meanwhile or f"{tool.name} has begun and goes on in the background: its result follows."
        answer = v2025.create_result(task, poll_ms=poll_ms, now=now, meanwhile=meanwhile)
        return hand_out(task, cast("dict[str, Any]", answer))

    async def _hand_out(self, ctx: AnyContext, task: Task, tool: ServedTool) -> HandlerResult | View:
        """The task, unless it ends soon enough."""
        seconds = tool.policy.inline_for
        if seconds is None:
            seconds = choose_inline(tool.policy, self._running.known(tool.name)).seconds
        view = await self._waiting.see(ctx, task, seconds) if seconds else View(task, None, ())
        if seconds and view.task.is_terminal:
            return view
        return cast("dict[str, Any]", v2026.create_result(view.task, poll_ms=self._running.pace.interval_ms(view.task)))


def _takes_tasks(ctx: AnyContext) -> bool:
    return knows_tasks(ctx) or asks_for_task(ctx)


def _answers_in(params: CallToolRequestParams) -> Json:
    """What was answered before the task: its body finds it again by playing the last round once more."""
    if params.input_responses is None and params.request_state is None:
        return None
    dumped = params.model_dump(
        by_alias=True, mode="json", exclude_none=True, include={"input_responses", "request_state"}
    )
    return cast("Json", dumped)


def _ttl_of(ctx: AnyContext, params: CallToolRequestParams) -> timedelta | None:
    """For how long the caller asks to have the task kept. As long as there is time, if it asks for more."""
    if not asks_for_task(ctx) or params.task is None or params.task.ttl is None:
        return None
    return timedelta(milliseconds=min(params.task.ttl, timedelta.max // timedelta(milliseconds=1)))


def _not_as_a_task(name: str, *, is_there: bool = True) -> MCPError:
    if not is_there:
        return invalid_params(f"there is no tool {name!r}")
    return MCPError(errors.METHOD_NOT_FOUND, f"tool {name!r} can't be called as a task: call it without params.task")
