"""Actions that wait through the task's context: for an answer of a user or a model, for another workflow, or for time.

They occupy no worker slot while they wait.
"""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from raincheck.core.json_schema import InvalidSchema, SchemaValidator
from raincheck.core.records import InputKind
from raincheck.core.values import Json, encode
from raincheck.engine.execution.context import Child, TaskContext
from raincheck.engine.execution.workflow_context import WorkflowContext
from raincheck.engine.inputs import Reply, parse_reply
from raincheck.errors import InvalidValue, ProtocolError, QuotaExceeded, RaincheckError, TaskFailed, TooLarge, ToolError
from raincheck.workflows.actions.base import Action, ActionCall, ActionFailed, return_record
from raincheck.workflows.actions.http import HttpRequest, fetch
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.template import Template, has_expressions, texts_in
from raincheck.workflows.parsing import source
from raincheck.workflows.parsing.models import ActionModel, AskModel, ErrorKind, Properties, SampleModel, object_schema
from raincheck.workflows.permissions import Permissions
from raincheck.workflows.validation import check_properties

URL = "RAINCHECK_SAMPLING_URL"
KEY = "RAINCHECK_SAMPLING_KEY"
MODEL = "RAINCHECK_SAMPLING_MODEL"

MAX_BODY = 1_000_000

FORM_FIELD_TYPES = frozenset({"string", "number", "integer", "boolean"})
"""The types of a form field with a single value."""


class AskAction(Action):
    """Ask the caller's user. The result is the user's answer."""

    waits = True
    template_keys = ("message",)

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        ask = cast("AskModel", model.ask)
        self.label = "ask the user"
        self._message = Template.parse(ask.message)
        self._schema = cast("Mapping[str, Json]", object_schema(ask.fields))

    @staticmethod
    def check(model: ActionModel, permissions: Permissions) -> Iterator[Problem]:  # noqa: ARG004 - as in the base class
        for route, message in _check_form(cast("AskModel", model.ask).fields):
            yield ("ask", "schema", *route), message

    async def perform(self, call: ActionCall) -> Json:
        request: Json = {"message": str(self._message.render(call.scope)), "requestedSchema": self._schema}
        try:
            # Not with `elicit`, which yields to the event loop before it asks, so that a timeout could come first.
            answer = await call.task.ask(InputKind.ELICITATION, request, name=call.name)
        except (ToolError, ProtocolError) as error:
            # The caller can't be asked, or answered with an error.
            raise ActionFailed("declined", str(error)) from error
        reply: Reply[Json] = parse_reply(answer, self._schema)
        if not reply.ok:
            raise ActionFailed("declined", f"the user answered with {reply.action}")
        return reply.content


def _check_form(fields: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the errors of the fields of a form, which are single values, or several choices from a list."""
    if fields.get("type") == "object" and isinstance(fields.get("properties"), Mapping):
        yield (), "write only the fields, without `type` and `properties`: {ok: {type: boolean}}"
        return
    problems = list(check_properties(fields))
    yield from problems
    for name in fields.keys() - {route[0] for route, _ in problems}:
        if not _is_form_field(fields[name]):
            message = (
                "a form can't have this field: use type string, number, integer or boolean, or an array whose items "
                "are an enum"
            )
            yield (name,), message


def _is_form_field(schema: Mapping[str, Any]) -> bool:
    if schema.get("type") in FORM_FIELD_TYPES:
        return True
    items: Any = schema.get("items")
    is_choice = isinstance(items, Mapping) and not items.keys().isdisjoint({"enum", "anyOf"})
    return schema.get("type") == "array" and is_choice


class SampleAction(Action):
    """Sample a model: the one behind the OpenAI-compatible endpoint that the operator configured, else the caller's.

    The result is `{text, model}`.
    """

    waits = True
    template_keys = ("prompt", "system", "messages")

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        self.label = "ask a model"
        # A request to an endpoint is one checkpoint, and does not wait through the task's context.
        self.waits = not os.environ.get(URL)
        sample = cast("SampleModel", model.sample)
        messages: list[Json] = [{"role": message.role, "text": message.text} for message in sample.messages or ()]
        messages = messages or [{"role": "user", "text": sample.prompt}]
        self._template = Template.parse({"messages": messages, "system": sample.system})
        self._max_tokens = sample.max_tokens

    async def perform(self, call: ActionCall) -> Json:
        rendered = cast("Mapping[str, Json]", self._template.render(call.scope))
        system = None if rendered["system"] is None else str(rendered["system"])
        messages = [
            (str(message["role"]), str(message["text"]))
            for message in cast("list[Mapping[str, Json]]", rendered["messages"])
        ]
        return await (self._ask_host(call, messages, system) if self.waits else self._ask_endpoint(messages, system))

    async def _ask_host(self, call: ActionCall, messages: list[tuple[str, str]], system: str | None) -> Json:
        contents: list[Json] = [{"role": role, "content": {"type": "text", "text": text}} for role, text in messages]
        options: dict[str, Json] = {} if system is None else {"systemPrompt": system}
        try:
            answer = await call.task.sample(contents, name=call.name, maxTokens=self._max_tokens, **options)
        except (ToolError, ProtocolError) as error:
            raise ActionFailed("declined", str(error)) from error
        fields = cast("Mapping[str, Json]", answer)
        return {"text": _text(fields.get("content")), "model": fields.get("model")}

    async def _ask_endpoint(self, messages: list[tuple[str, str]], system: str | None) -> Json:
        contents: list[Json] = [{"role": role, "content": text} for role, text in messages]
        if system is not None:
            contents.insert(0, {"role": "system", "content": system})
        body: Json = {"model": os.environ.get(MODEL, ""), "messages": contents, "max_tokens": self._max_tokens}
        headers = {"content-type": "application/json"}
        if os.environ.get(KEY):
            headers["authorization"] = f"Bearer {os.environ[KEY]}"
        url = f"{os.environ[URL].rstrip('/')}/chat/completions"
        response, content = await fetch(HttpRequest("POST", url, headers, encode(body), MAX_BODY), None)
        if response.status_code != 200:
            raise ActionFailed("http", f"the model's endpoint answered with status {response.status_code}")
        try:
            completion = json.loads(content)
            return {"text": str(completion["choices"][0]["message"]["content"]), "model": completion.get("model")}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ActionFailed(
                "http", "the model's endpoint answered with something other than a completion"
            ) from error


def _text(content: Json) -> str:
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, Mapping) and "text" in part)


class WorkflowAction(Action):
    """Run another workflow as a child task. The result is the child's result."""

    waits = True

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        self._name = str(model.workflow)
        self._arguments = Template.parse(model.arguments)
        self.label = f"run workflow {self._name}"

    @staticmethod
    def check(model: ActionModel, permissions: Permissions) -> Iterator[Problem]:
        name = str(model.workflow)
        if name not in permissions.workflows:
            declared = ", ".join(sorted(permissions.workflows))
            yield ("workflow",), f"there is no workflow {name!r}: the workflows are {declared}"
        properties = permissions.workflows.get(name)
        if properties is not None:
            for route, message in _check_arguments(name, properties, model.arguments):
                yield ("with", *route), message

    async def perform(self, call: ActionCall) -> Json:
        arguments = cast("Mapping[str, Json]", self._arguments.render(call.scope))
        starting = asyncio.ensure_future(self._start(call, arguments))
        try:
            # Shielded, so that a child that starts during the cancellation is known and can be cancelled.
            return await (await asyncio.shield(starting)).result()
        except asyncio.CancelledError:
            await _cancel_abandoned_child(call.task, starting)
            raise
        except TooLarge as error:
            raise ActionFailed("too-large", str(error)) from error
        except (TaskFailed, InvalidValue) as error:
            raise ActionFailed("failed", str(error)) from error

    async def _start(self, call: ActionCall, arguments: Mapping[str, Json]) -> Child:
        """Start the child. A refusal is recorded too, or a later attempt might start a child that nothing waits for."""
        task, checkpoint_name = call.task, f"{call.name} refused"
        record: Mapping[str, Json] = {}
        if not WorkflowContext(task).has_step(checkpoint_name):
            try:
                return await task.spawn(self._name, arguments, name=call.name)
            except TooLarge as error:
                record = {"kind": "too-large", "message": str(error)}
            except QuotaExceeded as error:
                record = {"kind": "failed", "message": str(error)}
        recorded = await task.step(checkpoint_name, partial(return_record, record))
        raise ActionFailed(cast("ErrorKind", recorded["kind"]), str(recorded["message"]))


def _check_arguments(name: str, properties: Properties, arguments: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the errors of the arguments for a workflow, as far as they are known before expressions are evaluated."""
    schema = object_schema(properties)
    for missing in sorted(set(schema["required"]) - arguments.keys()):
        yield (), f"workflow {name!r} requires {missing!r}: add it"
    for argument, value in arguments.items():
        if argument not in properties:
            accepted = ", ".join(sorted(properties)) or "no arguments"
            yield (argument,), f"workflow {name!r} does not take {argument!r}: it takes {accepted}"
        elif not any(has_expressions(text) for _, text in texts_in(value, ())):
            yield from (((argument,), message) for message in _misfits(schema["properties"][argument], value))


def _misfits(schema: Any, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    # An invalid schema is reported where it is declared.
    if any(check_properties({"": schema})):
        return
    with suppress(InvalidSchema):
        yield from (error.message for error in SchemaValidator(schema).errors(value))


async def _cancel_abandoned_child(task: TaskContext, starting: "asyncio.Future[Child]") -> None:
    """Cancel a child that is no longer awaited, unless only this attempt is stopping."""
    if task.cancelled:
        starting.cancel()
        return
    with suppress(RaincheckError):
        await WorkflowContext(task).cancel_child((await starting).id)


class SleepAction(Action):
    """Sleep. The time also passes while no process runs."""

    waits = True

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        self._duration = Template.parse(model.sleep)

    @staticmethod
    def check(model: ActionModel, permissions: Permissions) -> Iterator[Problem]:  # noqa: ARG004 - likewise
        if not has_expressions(str(model.sleep)):
            try:
                source.parse_duration(cast("str", model.sleep))
            except InvalidValue as error:
                yield ("sleep",), str(error)

    async def perform(self, call: ActionCall) -> Json:
        try:
            seconds = source.parse_duration(cast("str", self._duration.render(call.scope)))
        except InvalidValue as error:
            raise ActionFailed("expression", str(error)) from error
        await call.task.sleep(seconds, name=call.name)
        return None
