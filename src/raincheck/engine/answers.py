"""Answers from outside: refused while the question is still open, if they are not what was asked for."""

from collections.abc import Mapping
from typing import Any

from raincheck.core.content import InputKind, InputRequest
from raincheck.core.payload import Json, decode
from raincheck.engine.reply import ACTIONS
from raincheck.errors import InvalidValue


def check_answer(question: InputRequest, answer: Json) -> None:
    """Refuse an answer that does not fit its question.

    Raises:
        InvalidValue: it says what is wrong with it. The question stays open.
    """
    what = f"the answer to {question.key!r}"
    if not isinstance(answer, Mapping):
        raise InvalidValue(f"{what} must be an object, not {type(answer).__name__}")
    if question.kind is not InputKind.ELICITATION:
        return
    action, content = answer.get("action"), answer.get("content")
    if action not in ACTIONS:
        raise InvalidValue(f'{what} is {{"action": "accept", "content": …}} or has the action "decline" or "cancel"')
    if action == "accept":
        request = decode(question.request)
        assert isinstance(request, Mapping)  # noqa: S101 - we wrote it
        _check_content(what, content, request["requestedSchema"])


def _check_content(what: str, content: Json, schema: Any) -> None:  # noqa: ANN401 - any JSON Schema
    # It takes a tenth of a second to import, and most programs never need it.
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    if not isinstance(content, Mapping):
        raise InvalidValue(f"{what} is accepted, so its content must be an object, not {type(content).__name__}")
    try:
        kind = validator_for(schema)
        kind.check_schema(schema)
    except SchemaError:
        # It was asked with a schema that is none. That is not the answer's fault.
        return
    # With no registry but an empty one, so that no schema makes us fetch anything.
    try:
        error = next(iter(kind(schema, registry=Registry()).iter_errors(content)), None)
    except (Unresolvable, RecursionError):
        # Likewise: it refers to what is not there, or to itself.
        return
    if error is not None:
        where = f" at {error.json_path}" if error.absolute_path else ""
        raise InvalidValue(f"{what} is not what was asked for: {error.message}{where}")
