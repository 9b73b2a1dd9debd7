"""What a task asks, as the request that its caller gets. Both generations ask in the same words."""

from collections.abc import Mapping
from typing import Literal, TypedDict, assert_never

from raincheck.core.content import InputKind, InputRequest
from raincheck.core.payload import Json, decode
from raincheck.wire.words import as_object

MAX_TOKENS = 1_000
"""What a model may answer where the tool does not say, because the protocol wants it said."""


class Request(TypedDict):
    """A request to a caller."""

    method: Literal["elicitation/create", "sampling/createMessage", "roots/list"]
    params: Mapping[str, Json]


def request_of(question: InputRequest) -> Request:
    """The request that asks it."""
    # A field without a value is left out: to a strict reader, null is something else than nothing.
    told = {name: value for name, value in as_object(decode(question.request)).items() if value is not None}
    match question.kind:
        case InputKind.ELICITATION:
            return {"method": "elicitation/create", "params": _elicitation(told)}
        case InputKind.SAMPLING:
            return {"method": "sampling/createMessage", "params": {"maxTokens": MAX_TOKENS, **told}}
        case InputKind.ROOTS:
            return {"method": "roots/list", "params": told}
        case _:
            assert_never(question.kind)


def _elicitation(told: Mapping[str, Json]) -> Mapping[str, Json]:
    params: dict[str, Json] = {"mode": "form", "message": "", **told}
    if params["mode"] == "form":
        # Both are required, also of a form that asks for nothing but a yes.
        params["requestedSchema"] = {"type": "object", "properties": {}, **as_object(told.get("requestedSchema"))}
    return params
