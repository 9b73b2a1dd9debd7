"""The client's callbacks for questions, and who else may answer."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

from mcp.client.session import ClientRequestContext
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitRequest,
    ElicitResult,
    ErrorData,
    ListRootsRequest,
    ListRootsResult,
)
from pydantic import BaseModel, ValidationError

from raincheck.client.asked import key_of
from raincheck.client.held import Heard
from raincheck.client.options import ClientOptions
from raincheck.client.updates import Question
from raincheck.wire.results import INPUT_KEY

Callback = Callable[..., Coroutine[Any, Any, Any]]

CALLBACKS = {
    "elicitation/create": "elicitation_callback",
    "sampling/createMessage": "sampling_callback",
    "roots/list": "list_roots_callback",
}
"""Which option answers which question."""

REQUESTS: dict[str, type[ElicitRequest | CreateMessageRequest | ListRootsRequest]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}
_ANSWERS: dict[str, type[BaseModel]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}


async def by_hand(context: ClientRequestContext, params: object = None) -> Any:  # noqa: ANN401 - stands in for several
    """A callback that says: ask, and I answer with `Handle.answer`.

        TaskClient(server, elicitation_callback=by_hand)

    A server asks only those who declare that they can be asked. What is asked by a call that is no task is refused:
    nobody has a handle of it.
    """
    del context, params
    return ErrorData(code=INVALID_REQUEST, message="only tasks may ask here, and this call is none")


def can_ask(options: ClientOptions, method: str) -> bool:
    """Whether there is a callback that answers such a question."""
    return options.get(CALLBACKS.get(method, "")) not in (None, by_hand)


def wrap_callbacks(options: ClientOptions, heard: Heard) -> None:
    """Have each callback asked once, even if a task asks again on another connection."""
    everything = cast("dict[str, Any]", options)
    for method, option in CALLBACKS.items():
        if everything.get(option) is not None:
            everything[option] = _once(heard, method, everything[option])


def _once(heard: Heard, method: str, callback: Callback) -> Callback:
    async def ask(context: ClientRequestContext, *params: BaseModel) -> object:
        held = heard.related(cast("Mapping[str, Any] | None", context.meta))
        if held is None:
            return await callback(context, *params)
        words = params[0].model_dump(by_alias=True, mode="json", exclude_none=True) if params else {}
        input_key = (context.meta or {}).get(INPUT_KEY)
        is_named = isinstance(input_key, str)
        key = key_of(method, words, input_key if is_named else None)
        if callback is not by_hand:
            return await held.asked.ask(key, lambda: callback(context, *params), is_named=is_named)
        held.changed()
        question = Question(key, {"method": method, "params": words})
        return _read_answer(method, await held.asked.wait_for_hand(question, is_named=is_named))

    return ask


def _read_answer(method: str, answer: Mapping[str, Any]) -> object:
    try:
        return _ANSWERS[method].model_validate(answer, by_name=False)
    except ValidationError as error:
        return ErrorData(code=INVALID_PARAMS, message=f"that is no answer: {error.errors()[0]['msg']}")
