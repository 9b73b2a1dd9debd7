"""Calls of the tools by which callers without tasks go on with one. What goes wrong is told in words, to a model.

What a model answers for its user by calling a tool, in the words of the protocol.

Only what is surely an answer is taken for one: to say nothing, or something else, is not to say yes.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, assert_never, cast

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.payload import Json, decode
from raincheck.core.records import InputKind, InputRequest, Task, View
from raincheck.errors import CancelRefused, IllegalTransition, InvalidValue, ProtocolError, RaincheckError, TaskNotFound
from raincheck.server import audit
from raincheck.server.caller import LONGEST_ID
from raincheck.server.errors import as_protocol_error
from raincheck.server.render import Showing
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.stream_limits import RESULTS, Places
from raincheck.server.tools.results import COMPLETE
from raincheck.server.wait import Waiting, is_next_round
from raincheck.wire.fallback_text import Telling, described, refused, squeezed
from raincheck.wire.fallback_tool_list import listed
from raincheck.wire.fields import as_object

PLACEHOLDER = re.compile(r"<(array|boolean|integer|number|object|reply|string|value)>")
"""What an example has where the answer is to be."""

TEXT = "text"
"""The field of a model's reply."""


def answer_to(question: InputRequest, arguments: Mapping[str, Any]) -> Json:
    """What was answered.

    Raises:
        InvalidValue: it is none.
    """
    answer: object = arguments.get("answer")
    if not isinstance(answer, Mapping) or set(cast("Mapping[str, Any]", answer)) == {"action"}:
        raise InvalidValue("the answer is an object with what was asked for; to refuse is an `action` beside it")
    # No form knows null: it is what some models give for nothing.
    given: dict[str, Any] = {name: one for name, one in cast("Mapping[str, Any]", answer).items() if one is not None}
    if any(isinstance(one, str) and PLACEHOLDER.fullmatch(one) for one in given.values()):
        raise InvalidValue("put the real answer where the example has < and >")
    match question.kind:
        case InputKind.ELICITATION:
            _check_fields(question, given)
            return {"action": "accept", "content": given}
        case InputKind.SAMPLING:
            if TEXT not in given:
                raise InvalidValue('the answer is your reply, as {"text": "…"}')
            said = {"type": "text", "text": str(given[TEXT])}
            return {"role": "assistant", "model": "the caller's", "content": said}
        case InputKind.ROOTS:
            return given
        case _:
            assert_never(question.kind)


def _check_fields(question: InputRequest, given: Mapping[str, Any]) -> None:
    """Refuse what a form does not ask for: it would be left out, and the rest taken for a yes.

    Raises:
        InvalidValue: it says what is not asked for.
    """
    schema = as_object(as_object(decode(question.request)).get("requestedSchema"))
    fields = as_object(schema.get("properties"))
    if set(given) == {TEXT} and TEXT not in fields:
        raise InvalidValue("the answer is an object with what was asked for, not a text")
    others = [name for name in given if fields and name not in fields]
    if others:
        raise InvalidValue(f"{', '.join(others)} is not asked for")


MOST_LISTED = 3

REJECTED = -1
"""The protocol's code for what a user does not let a model say."""

Arguments: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = dict[str, Any] | View


class NotAnAnswer(InvalidValue):
    """What was given is no answer, which is told in words of its own."""

    def __init__(self, why: str, told: dict[str, Any]) -> None:
        super().__init__(why)
        self.told = told


class PlainCalls:
    """Serves them, for callers of every version."""

    def __init__(self, running: Running, telling: Telling, waiting: Waiting) -> None:
        self._running = running
        self._telling = telling
        self._waiting = waiting
        self._showing = Showing(running)
        self._places = Places(RESULTS)
        self._schemas: dict[str, Any] = {tool["name"]: tool["inputSchema"] for tool in listed(telling)}
        names = telling.tools
        self._serve: dict[str, Callable[[AnyContext, Arguments, Owner], Awaitable[Answer]]] = {
            names.wait: self._wait,
            names.status: self._status,
            names.result: self._result,
            names.cancel: self._cancel,
            names.answer: self._answer,
        }

    def has(self, name: str) -> bool:
        """Whether a call of this name is for us, and not for a tool of the server's own."""
        return name in self._serve and name not in self._telling.taken

    async def __call__(self, ctx: AnyContext, params: CallToolRequestParams, owner: Owner) -> HandlerResult:
        try:
            if is_next_round(ctx, params):
                answer = await self._go_on(ctx, await self._waiting.answered(params, owner))
            else:
                arguments = _read(params.arguments)
                await asyncio.to_thread(_check, params.name, self._schemas[params.name], arguments)
                answer = await self._serve[params.name](ctx, arguments, owner)
            return await self._ended(answer) if isinstance(answer, View) else {**COMPLETE, **answer}
        except TaskNotFound as error:
            told = self._telling.unknown(error.task_id, may_list=owner.may_list)
            refusal, task_id = as_protocol_error(error), error.task_id
        except RaincheckError as error:
            refusal, task_id = as_protocol_error(error), None
            told = error.told if isinstance(error, NotAnAnswer) else refused(squeezed(refusal.error.message))
        code = refusal.error.code
        audit.note(audit.REFUSED, owner, method=ctx.method, tool=params.name, task_id=task_id, code=code)
        return {**told, **COMPLETE}

    async def _ended(self, view: View) -> dict[str, Any]:
        """The result of a task. A model reads of an error more surely than a host passes one on."""
        try:
            return await self._showing.answer(view)
        except MCPError as error:
            is_cancelled = view.task.phase is Phase.CANCELLED
            why = described(view.task) if is_cancelled else f"{view.task.tool.name} failed: {error.error.message}"
            return {**refused(why), **COMPLETE}

    async def _wait(self, ctx: AnyContext, arguments: Arguments, owner: Owner) -> Answer:
        view = await self._view(arguments, owner)
        return view if view.task.is_terminal else await self._go_on(ctx, view.task)

    async def _go_on(self, ctx: AnyContext, task: Task) -> Answer:
        with self._places.taken(task.owner, 1):
            return await self._waiting.wait(ctx, task, self._telling.wait)

    async def _status(self, _: AnyContext, arguments: Arguments, owner: Owner) -> dict[str, Any]:
        now = self._running.options.clock.now()
        if "task_id" in arguments:
            view = await self._view(arguments, owner)
            return self._telling.status(view, now, self._running.left_of(view.task))
        if not owner.may_list:
            return refused("This server can't tell whose tasks are yours: give a task_id, or call the tool again.")
        tool = arguments.get("tool")
        page = await self._running.engine.list_tasks(owner=owner, tool=tool)
        # Those that go on first: they are what is looked for.
        found = sorted(page.tasks, key=lambda task: task.is_terminal)
        return self._telling.latest(found[:MOST_LISTED], now, tool)

    async def _result(self, _: AnyContext, arguments: Arguments, owner: Owner) -> Answer:
        view = await self._view(arguments, owner)
        return view if view.task.is_terminal else self._waiting.tell(view)

    async def _cancel(self, _: AnyContext, arguments: Arguments, owner: Owner) -> dict[str, Any]:
        task_id = _id_of(arguments)
        try:
            task = await self._running.engine.cancel(task_id, owner=owner)
        except IllegalTransition:
            return self._telling.too_late(await self._running.engine.task(task_id, owner=owner))
        except CancelRefused as refused:
            task = await self._running.engine.task(task_id, owner=owner)
            return self._telling.too_late(task) if task.is_terminal else self._telling.goes_on(task, refused)
        audit.note("cancelled", owner, task_id=task.id, tool=task.tool.name)
        return self._telling.cancelled(task)

    async def _answer(self, ctx: AnyContext, arguments: Arguments, owner: Owner) -> Answer:
        view = await self._view(arguments, owner)
        if view.task.is_terminal:
            return await self._not_used(view)
        waiting = {one.key: one for one in view.inputs}
        if not waiting:
            raise NotAnAnswer("nothing is asked", self._telling.nothing_asked(view.task))
        key = arguments.get("key", next(iter(waiting)) if len(waiting) == 1 else None)
        if key not in waiting:
            why = "say with `key` which question it answers" if key is None else f"no question has the key {key!r}"
            raise NotAnAnswer(why, self._telling.not_an_answer(view, why))
        try:
            await self._keep(view.task, waiting[key], arguments)
        except InvalidValue as error:
            why = str(error).removeprefix(f"the answer to {key!r} is not what was asked for: ")
            raise NotAnAnswer(why, self._telling.not_an_answer(view, why)) from error
        except IllegalTransition:
            # It has just ended.
            return await self._not_used(await self._view(arguments, owner))
        return await self._go_on(ctx, view.task)

    async def _not_used(self, view: View) -> dict[str, Any]:
        return self._telling.not_used(view.task, await self._ended(view))

    async def _keep(self, task: Task, question: InputRequest, arguments: Arguments) -> None:
        engine, action = self._running.engine, arguments.get("action", "accept")
        if action != "accept" and question.kind is not InputKind.ELICITATION:
            refusal = ProtocolError(f"the caller said: {action}", REJECTED)
            await engine.refuse(task.id, question.key, refusal, owner=task.owner)
            return
        answer = {"action": action} if action != "accept" else answer_to(question, arguments)
        await engine.answer(task.id, {question.key: answer}, owner=task.owner)

    async def _view(self, arguments: Arguments, owner: Owner) -> View:
        return await self._running.engine.view(_id_of(arguments), owner=owner)


def _id_of(arguments: Arguments) -> str:
    task_id: str = arguments["task_id"].strip()
    if len(task_id) > LONGEST_ID:
        raise TaskNotFound(f"{task_id[:LONGEST_ID]}…")
    return task_id


def _read(arguments: Arguments | None) -> dict[str, Any]:
    """What was given. Some models give null or "" for nothing, an object as text, or only the text in it."""
    given = {name: value for name, value in (arguments or {}).items() if value not in (None, "")}
    if isinstance(answer := given.get("answer"), str):
        try:
            read: object = json.loads(answer)
        except (ValueError, RecursionError):
            read = None
        given["answer"] = read if isinstance(read, dict) else {TEXT: answer}
    return given


def _check(tool: str, schema: Any, arguments: Arguments) -> None:  # noqa: ANN401 - any JSON Schema
    """Refuse arguments that don't fit. In a thread, since what checks them is imported when it is first needed."""
    from jsonschema import Draft202012Validator

    checking: Any = Draft202012Validator(schema)
    for error in checking.iter_errors(dict(arguments)):
        raise InvalidValue(f"{tool} can't be called like that: {error.message}")
