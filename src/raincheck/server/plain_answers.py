"""What a model answers for its user by calling a tool, in the words of the protocol.

Only what is surely an answer is taken for one: to say nothing, or something else, is not to say yes.
"""

import re
from collections.abc import Mapping
from typing import Any, assert_never, cast

from raincheck.core.content import InputKind, InputRequest
from raincheck.core.payload import Json, decode
from raincheck.errors import InvalidValue
from raincheck.wire.words import as_object

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
