"""Serve the fallback tools, through which callers without tasks continue with a task.

Errors are returned as text for a model. A model answers an input request on behalf of its user by calling a tool, and
this module converts the call to an answer in the protocol. It accepts only unambiguous answers: anything else, or
silence, is not consent.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, assert_never, cast

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams

from raincheck.core.json_schema import SchemaValidator
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import InputKind, InputRequest, Task, View
from raincheck.core.values import Json, decode
from raincheck.errors import CancelRefused, IllegalTransition, InvalidValue, ProtocolError, RaincheckError, TaskNotFound
from raincheck.server import audit
from raincheck.server.caller import MAX_ID_LENGTH, Caller
from raincheck.server.errors import as_protocol_error
from raincheck.server.limits import RESULT_LIMITS, StreamSlots
from raincheck.server.results import COMPLETE, TaskRenderer
from raincheck.server.runtime import ServerRuntime
from raincheck.server.wait import CallWaiter
from raincheck.server.wait_policy import WaitPolicy
from raincheck.wire import v2026
from raincheck.wire.fallback_text import FallbackMessages, clip_middle, describe_task, error_result
from raincheck.wire.fallback_tools import list_fallback_tools
from raincheck.wire.fields import as_object

PLACEHOLDER = re.compile(r"<(array|boolean|integer|number|object|reply|string|value)>")
"""Matches a placeholder, which stands for a value in an example answer."""

TEXT = "text"
"""The field that contains a model's reply."""


def parse_answer(question: InputRequest, arguments: Mapping[str, Any]) -> Json:
    """Convert the arguments of a call to an answer.

    Raises:
        InvalidValue: the arguments are not a valid answer.
    """
    answer: object = arguments.get("answer")
    if not isinstance(answer, Mapping) or set(cast("Mapping[str, Any]", answer)) == {"action"}:
        raise InvalidValue("the answer must be an object with the requested values; to refuse, pass `action` instead")
    # Drop null, which some models send for an empty value. No form accepts it.
    values = {name: value for name, value in cast("Mapping[str, Any]", answer).items() if value is not None}
    if any(isinstance(value, str) and PLACEHOLDER.fullmatch(value) for value in values.values()):
        raise InvalidValue("replace each placeholder in < and > with the real answer")
    match question.kind:
        case InputKind.ELICITATION:
            _check_fields(question, values)
            return {"action": "accept", "content": values}
        case InputKind.SAMPLING:
            if TEXT not in values:
                raise InvalidValue('the answer must be your reply, as {"text": "…"}')
            content = {"type": "text", "text": str(values[TEXT])}
            return {"role": "assistant", "model": "the caller's", "content": content}
        case InputKind.ROOTS:
            return values
        case _:
            assert_never(question.kind)


def _check_fields(question: InputRequest, values: Mapping[str, Any]) -> None:
    """Reject fields that a form does not request. They would be dropped, and the rest would count as consent.

    Raises:
        InvalidValue: the answer has a field that was not requested.
    """
    schema = as_object(as_object(decode(question.request)).get("requestedSchema"))
    fields = as_object(schema.get("properties"))
    if set(values) == {TEXT} and TEXT not in fields:
        raise InvalidValue("the answer must be an object with the requested values, not a text")
    unknown = [name for name in values if fields and name not in fields]
    if unknown:
        raise InvalidValue(f"the question does not ask for {', '.join(unknown)}")


MAX_LISTED = 3
"""Maximum number of tasks in a list for a model."""

REJECTED = -1
"""The protocol's error code for a request that the user rejects."""

ToolArguments: TypeAlias = Mapping[str, Any]
CallAnswer: TypeAlias = dict[str, Any] | View


class InvalidAnswer(InvalidValue):
    """Raised for arguments that are not a valid answer, with the tool result that explains why."""

    def __init__(self, reason: str, result: dict[str, Any]) -> None:
        super().__init__(reason)
        self.result = result


class FallbackToolCalls:
    """Serves the fallback tools to callers of every version."""

    def __init__(
        self,
        runtime: ServerRuntime,
        wait_policy: WaitPolicy,
        waiter: CallWaiter,
        renderer: TaskRenderer,
        messages: FallbackMessages,
    ) -> None:
        self._runtime = runtime
        self._wait_policy = wait_policy
        self._waiter = waiter
        self._renderer = renderer
        self._messages = messages
        self._slots = StreamSlots(RESULT_LIMITS)
        self._schemas: dict[str, Any] = {tool["name"]: tool["inputSchema"] for tool in list_fallback_tools(messages)}
        names = messages.tools
        self._handlers: dict[str, Callable[[Caller, ToolArguments, Owner], Awaitable[CallAnswer]]] = {
            names.wait: self._wait,
            names.status: self._status,
            names.result: self._result,
            names.cancel: self._cancel,
            names.answer: self._answer,
        }

    def serves(self, name: str) -> bool:
        """Return whether this is a fallback tool. A tool of the server's own that has its name is called instead."""
        return name in self._handlers and name not in self._messages.name_conflicts

    async def __call__(self, caller: Caller, params: CallToolRequestParams, owner: Owner) -> HandlerResult:
        try:
            if caller.is_modern and v2026.is_next_round(params.request_state):
                answer = await self._resume_wait(caller, await self._waiter.accept_answers(params, owner))
            else:
                arguments = _normalize(params.arguments)
                await asyncio.to_thread(_check_arguments, params.name, self._schemas[params.name], arguments)
                answer = await self._handlers[params.name](caller, arguments, owner)
            return await self._render_ended(answer) if isinstance(answer, View) else {**COMPLETE, **answer}
        except TaskNotFound as error:
            result = self._messages.unknown_task(error.task_id, may_list=owner.may_list)
            refusal, task_id = as_protocol_error(error, caller.ctx.method), error.task_id
        except RaincheckError as error:
            refusal, task_id = as_protocol_error(error, caller.ctx.method), None
            result = (
                error.result if isinstance(error, InvalidAnswer) else error_result(clip_middle(refusal.error.message))
            )
        code = refusal.error.code
        audit.log_event(audit.REFUSED, owner, method=caller.ctx.method, tool=params.name, task_id=task_id, code=code)
        return {**result, **COMPLETE}

    async def _render_ended(self, view: View) -> dict[str, Any]:
        """Render the result of a terminal task. A protocol error is rendered as a tool error.

        A tool error reaches the model reliably, while a host may not pass on a protocol error.
        """
        try:
            return await self._renderer.render_result(view)
        except MCPError as error:
            is_cancelled = view.task.phase is Phase.CANCELLED
            text = describe_task(view.task) if is_cancelled else f"{view.task.tool.name} failed: {error.error.message}"
            return {**error_result(text), **COMPLETE}

    async def _wait(self, caller: Caller, arguments: ToolArguments, owner: Owner) -> CallAnswer:
        view = await self._view(arguments, owner)
        return view if view.task.is_terminal else await self._resume_wait(caller, view.task)

    async def _resume_wait(self, caller: Caller, task: Task) -> CallAnswer:
        with self._slots.acquire(task.owner, 1):
            return await self._waiter.wait(caller, task, self._messages.wait)

    async def _status(self, _: Caller, arguments: ToolArguments, owner: Owner) -> dict[str, Any]:
        now = self._runtime.clock.now()
        if "task_id" in arguments:
            view = await self._view(arguments, owner)
            return self._messages.status(view, now, self._wait_policy.estimate_remaining(view.task))
        if not owner.may_list:
            return error_result(
                "This server can't tell which tasks are yours: pass a task_id, or call the original tool again."
            )
        tool = arguments.get("tool")
        page = await self._runtime.engine.list_tasks(owner=owner, tool=tool)
        # Unfinished tasks first, because the model is most likely to look for those.
        tasks = sorted(page.tasks, key=lambda task: task.is_terminal)
        return self._messages.latest_tasks(tasks[:MAX_LISTED], now, tool)

    async def _result(self, _: Caller, arguments: ToolArguments, owner: Owner) -> CallAnswer:
        view = await self._view(arguments, owner)
        return view if view.task.is_terminal else self._waiter.describe_unfinished(view)

    async def _cancel(self, _: Caller, arguments: ToolArguments, owner: Owner) -> dict[str, Any]:
        task_id = _id_of(arguments)
        try:
            task = await self._runtime.engine.cancel(task_id, owner=owner)
        except IllegalTransition:
            return self._messages.already_ended(await self._runtime.engine.task(task_id, owner=owner))
        except CancelRefused as refused:
            task = await self._runtime.engine.task(task_id, owner=owner)
            return (
                self._messages.already_ended(task) if task.is_terminal else self._messages.cancel_refused(task, refused)
            )
        audit.log_event("cancelled", owner, task_id=task.id, tool=task.tool.name)
        return self._messages.cancelled(task)

    async def _answer(self, caller: Caller, arguments: ToolArguments, owner: Owner) -> CallAnswer:
        view = await self._view(arguments, owner)
        if view.task.is_terminal:
            return await self._answer_not_used(view)
        questions = {question.key: question for question in view.inputs}
        if not questions:
            raise InvalidAnswer("the task has no open question", self._messages.no_open_question(view.task))
        key = arguments.get("key", next(iter(questions)) if len(questions) == 1 else None)
        if key not in questions:
            reason = (
                "pass the `key` of the question that it answers" if key is None else f"no question has the key {key!r}"
            )
            raise InvalidAnswer(reason, self._messages.invalid_answer(view, reason))
        try:
            await self._submit_answer(view.task, questions[key], arguments)
        except InvalidValue as error:
            reason = str(error).removeprefix(f"the answer to {key!r} does not match the requested schema: ")
            raise InvalidAnswer(reason, self._messages.invalid_answer(view, reason)) from error
        except IllegalTransition:
            # The task has just ended.
            return await self._answer_not_used(await self._view(arguments, owner))
        return await self._resume_wait(caller, view.task)

    async def _answer_not_used(self, view: View) -> dict[str, Any]:
        return self._messages.answer_not_used(view.task, await self._render_ended(view))

    async def _submit_answer(self, task: Task, question: InputRequest, arguments: ToolArguments) -> None:
        engine, action = self._runtime.engine, arguments.get("action", "accept")
        if action != "accept" and question.kind is not InputKind.ELICITATION:
            refusal = ProtocolError(f"the caller refused the request (action: {action})", REJECTED)
            await engine.answer_with_error(task.id, question.key, refusal, owner=task.owner)
            return
        answer = {"action": action} if action != "accept" else parse_answer(question, arguments)
        await engine.answer(task.id, {question.key: answer}, owner=task.owner)

    async def _view(self, arguments: ToolArguments, owner: Owner) -> View:
        return await self._runtime.engine.view(_id_of(arguments), owner=owner)


def _id_of(arguments: ToolArguments) -> str:
    task_id: str = arguments["task_id"].strip()
    if len(task_id) > MAX_ID_LENGTH:
        raise TaskNotFound(f"{task_id[:MAX_ID_LENGTH]}…")
    return task_id


def _normalize(arguments: ToolArguments | None) -> dict[str, Any]:
    """Normalize arguments: some models send null or "" for an empty value, an object as text, or only its text."""
    normalized = {name: value for name, value in (arguments or {}).items() if value not in (None, "")}
    if isinstance(answer := normalized.get("answer"), str):
        try:
            parsed: object = json.loads(answer)
        except (ValueError, RecursionError):
            parsed = None
        normalized["answer"] = parsed if isinstance(parsed, dict) else {TEXT: answer}
    return normalized


def _check_arguments(tool: str, schema: Any, arguments: ToolArguments) -> None:  # noqa: ANN401 - any JSON Schema
    """Reject arguments that don't fit the schema. Runs in a thread, because the validator is imported on first use."""
    for error in SchemaValidator(schema).errors(dict(arguments)):
        raise InvalidValue(f"invalid arguments for {tool}: {error.message}")
