"""Actions that sample a model: the caller's, or one behind an endpoint that the operator configures."""

import json
import os
from collections.abc import Mapping
from typing import cast

from raincheck.core.payload import Json, encode
from raincheck.errors import ProtocolError, ToolError
from raincheck.workflows.actions.base import ActionCall, ActionFailed
from raincheck.workflows.actions.http import HttpRequest, fetch
from raincheck.workflows.expressions.template import Template
from raincheck.workflows.parsing.models import SampleModel

URL = "RAINCHECK_SAMPLING_URL"
KEY = "RAINCHECK_SAMPLING_KEY"
MODEL = "RAINCHECK_SAMPLING_MODEL"

MAX_BODY = 1_000_000


class _SampleAction:
    """The messages of a request to a model."""

    def __init__(self, model: SampleModel) -> None:
        messages: list[Json] = [{"role": message.role, "text": message.text} for message in model.messages or ()]
        messages = messages or [{"role": "user", "text": model.prompt}]
        self._template = Template.parse({"messages": messages, "system": model.system})
        self.max_tokens = model.max_tokens
        self.label = "ask a model"

    def render(self, call: ActionCall) -> tuple[list[tuple[str, str]], str | None]:
        rendered = cast("Mapping[str, Json]", self._template.render(call.scope))
        messages = cast("list[Mapping[str, Json]]", rendered["messages"])
        system = None if rendered["system"] is None else str(rendered["system"])
        return [(str(message["role"]), str(message["text"])) for message in messages], system


class HostSampleAction(_SampleAction):
    """Sample the caller's model. The result is `{text, model}`."""

    waits = True

    async def perform(self, call: ActionCall) -> Json:
        messages, system = self.render(call)
        contents: list[Json] = [{"role": role, "content": {"type": "text", "text": text}} for role, text in messages]
        options: dict[str, Json] = {} if system is None else {"systemPrompt": system}
        try:
            answer = await call.task.sample(contents, name=call.name, maxTokens=self.max_tokens, **options)
        except (ToolError, ProtocolError) as error:
            raise ActionFailed("declined", str(error)) from error
        fields = cast("Mapping[str, Json]", answer)
        return {"text": _text(fields.get("content")), "model": fields.get("model")}


class EndpointSampleAction(_SampleAction):
    """Sample a model behind an OpenAI-compatible endpoint. The result is `{text, model}`."""

    waits = False

    async def perform(self, call: ActionCall) -> Json:
        messages, system = self.render(call)
        contents: list[Json] = [{"role": role, "content": text} for role, text in messages]
        if system is not None:
            contents.insert(0, {"role": "system", "content": system})
        body: Json = {"model": os.environ.get(MODEL, ""), "messages": contents, "max_tokens": self.max_tokens}
        headers = {"content-type": "application/json"}
        if os.environ.get(KEY):
            headers["authorization"] = f"Bearer {os.environ[KEY]}"
        url = f"{os.environ[URL].rstrip('/')}/chat/completions"
        response = await fetch(HttpRequest("POST", url, headers, encode(body), MAX_BODY), None)
        if response.status != 200:
            raise ActionFailed("http", f"the model's endpoint answered with status {response.status}")
        try:
            completion = json.loads(response.body)
            return {"text": str(completion["choices"][0]["message"]["content"]), "model": completion.get("model")}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ActionFailed(
                "http", "the model's endpoint answered with something other than a completion"
            ) from error


def make_sample_action(model: SampleModel) -> HostSampleAction | EndpointSampleAction:
    """Return the action that samples the operator's endpoint if one is configured, else the caller's model."""
    return EndpointSampleAction(model) if os.environ.get(URL) else HostSampleAction(model)


def _text(content: Json) -> str:
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, Mapping) and "text" in part)
