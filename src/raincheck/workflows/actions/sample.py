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
        said: list[Json] = [{"role": one.role, "text": one.text} for one in model.messages or ()]
        said = said or [{"role": "user", "text": model.prompt}]
        self._said = Template.parse({"messages": said, "system": model.system})
        self.max_tokens = model.max_tokens
        self.label = "ask a model"

    def render(self, call: ActionCall) -> tuple[list[tuple[str, str]], str | None]:
        said = cast("Mapping[str, Json]", self._said.render(call.scope))
        messages = cast("list[Mapping[str, Json]]", said["messages"])
        system = None if said["system"] is None else str(said["system"])
        return [(str(one["role"]), str(one["text"])) for one in messages], system


class HostSampleAction(_SampleAction):
    """Sample the caller's model. The result is `{text, model}`."""

    waits = True

    async def perform(self, call: ActionCall) -> Json:
        messages, system = self.render(call)
        asked: list[Json] = [{"role": role, "content": {"type": "text", "text": text}} for role, text in messages]
        more: dict[str, Json] = {} if system is None else {"systemPrompt": system}
        try:
            answer = await call.task.sample(asked, name=call.name, maxTokens=self.max_tokens, **more)
        except (ToolError, ProtocolError) as error:
            raise ActionFailed("declined", str(error)) from error
        said = cast("Mapping[str, Json]", answer)
        return {"text": _text(said.get("content")), "model": said.get("model")}


class EndpointSampleAction(_SampleAction):
    """Sample a model behind an OpenAI-compatible endpoint. The result is `{text, model}`."""

    waits = False

    async def perform(self, call: ActionCall) -> Json:
        messages, system = self.render(call)
        asked: list[Json] = [{"role": role, "content": text} for role, text in messages]
        if system is not None:
            asked.insert(0, {"role": "system", "content": system})
        body: Json = {"model": os.environ.get(MODEL, ""), "messages": asked, "max_tokens": self.max_tokens}
        headers = {"content-type": "application/json"}
        if os.environ.get(KEY):
            headers["authorization"] = f"Bearer {os.environ[KEY]}"
        url = f"{os.environ[URL].rstrip('/')}/chat/completions"
        answer = await fetch(HttpRequest("POST", url, headers, encode(body), MAX_BODY), None)
        if answer.status != 200:
            raise ActionFailed("http", f"the model's endpoint answered with status {answer.status}")
        try:
            said = json.loads(answer.body)
            return {"text": str(said["choices"][0]["message"]["content"]), "model": said.get("model")}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ActionFailed("http", "the model's endpoint answered with something else than a completion") from error


def make_sample_action(model: SampleModel) -> HostSampleAction | EndpointSampleAction:
    """Return the action that samples the operator's endpoint if one is configured, else the caller's model."""
    return EndpointSampleAction(model) if os.environ.get(URL) else HostSampleAction(model)


def _text(content: Json) -> str:
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, Mapping) and "text" in part)
