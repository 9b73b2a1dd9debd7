"""What a task asks, in words: for a model whose host can't be asked, and that answers by calling a tool."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from raincheck.core.content import InputKind, InputRequest
from raincheck.core.payload import Json
from raincheck.wire.questions import request_of
from raincheck.wire.words import as_list, as_object


@dataclass(frozen=True, slots=True)
class SpokenQuestion:
    """A question as a model reads it."""

    text: str
    answer: Json
    """What an answer looks like."""
    facts: dict[str, Any]
    may_decline: bool = True
    """Whether there may be no answer."""


def speak(question: InputRequest) -> SpokenQuestion:
    """The question in words. All of it: nothing else may reach the model."""
    params = request_of(question)["params"]
    message = str(params.get("message", "")).strip()
    match question.kind:
        case InputKind.ELICITATION if "url" in params:
            text = f"Have the user open {params['url']}: {message or 'it has to be done there.'}"
            return SpokenQuestion(text, {}, {"kind": "url", **params})
        case InputKind.ELICITATION:
            schema = as_object(params.get("requestedSchema"))
            return SpokenQuestion(
                f"Ask the user: {message}{_fields_of(schema)}", _example(schema), {"kind": "form", **params}
            )
        case InputKind.SAMPLING:
            facts = {"kind": "reply", **params}
            return SpokenQuestion(f"Reply yourself: {_said(params)}", {"text": "<reply>"}, facts, may_decline=False)
        case InputKind.ROOTS:
            answer: Json = {"roots": [{"uri": "file:///<folder>"}]}
            facts = {"kind": "roots", **params}
            return SpokenQuestion("Name the folders to work in.", answer, facts, may_decline=False)
        case _:
            assert_never(question.kind)


def _fields_of(schema: Mapping[str, Json]) -> str:
    """What a form asks for, field by field."""
    properties, required = as_object(schema.get("properties")), as_list(schema.get("required"))
    fields = [_field(name, as_object(one), is_needed=name in required) for name, one in properties.items()]
    return f" ({'; '.join(fields)})" if fields else ""


def _field(name: str, schema: Mapping[str, Json], *, is_needed: bool) -> str:
    kind = " | ".join(_choices(schema)) or str(schema.get("type", "anything"))
    about = schema.get("description")
    return f"{name}: {kind}{'' if is_needed else ', optional'}{f', {about}' if about else ''}"


def _choices(schema: Mapping[str, Json]) -> list[str]:
    """What there is to choose from, where a field says so: for itself, or for each of several."""
    items = as_object(schema.get("items"))
    if items:
        several = " | ".join(_choices(items)) or str(items.get("type", "anything"))
        return [f"several of {several}"]
    titled = [as_object(one) for name in ("oneOf", "anyOf") for one in as_list(schema.get(name))]
    named = [
        f"{one['const']} ({one['title']})" if "title" in one else str(one["const"]) for one in titled if "const" in one
    ]
    return [*map(str, as_list(schema.get("enum"))), *named]


def _example(schema: Mapping[str, Json]) -> dict[str, Json]:
    properties = as_object(schema.get("properties"))
    named = as_list(schema.get("required")) or list(properties)
    return {str(name): f"<{as_object(properties.get(str(name))).get('type', 'value')}>" for name in named}


def _said(params: Mapping[str, Json]) -> str:
    """What a model is asked to reply to."""
    messages = [as_object(one) for one in as_list(params.get("messages"))]
    texts = [_text_of(one.get("content")) for one in messages]
    if len(texts) > 1:
        texts = [f"{one.get('role')}: {text}" for one, text in zip(messages, texts, strict=True)]
    system = params.get("systemPrompt")
    return "\n".join(texts if system is None else [str(system), *texts])


def _text_of(content: Json) -> str:
    blocks = as_list(content) or [content]
    return " ".join(str(as_object(block).get("text", "")) for block in blocks)
