"""Answers from outside: refused while the question is still open, if they are not what was asked for.

What comes back to whoever asked for something: the answer to a question, the result of a task.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, assert_never, cast

from raincheck.core.payload import Json, Payload, decode
from raincheck.core.records import InputKind, InputRequest
from raincheck.engine.execution.api import Ended
from raincheck.errors import InvalidValue, ProtocolError, TaskFailed, ToolError

T = TypeVar("T")

ACTIONS = ("accept", "decline", "cancel")
"""What can be said to a question."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """What somebody said to a question: yes with what was asked for, no, or nothing at all."""

    action: str
    """`accept`, `decline` or `cancel`."""
    content: Json
    value: T | None
    """The content as the type that was asked for; None unless it was accepted."""

    @property
    def ok(self) -> bool:
        """Whether it was accepted."""
        return self.action == "accept"


def schema_of(schema: type[object] | Mapping[str, Json]) -> Json:
    """The JSON Schema of what is asked for: given as such, or by a pydantic model.

    Raises:
        InvalidValue: it is neither, or no form can ask for it.
    """
    if isinstance(schema, Mapping):
        return schema
    if not hasattr(schema, "model_json_schema"):
        raise InvalidValue(f"ask for a JSON Schema or a pydantic model, not {schema!r}")
    # Forms have fields of few kinds, and the SDK knows how to write models as such. It takes a while to import.
    from mcp.server.elicitation import render_elicitation_schema

    try:
        return cast("Json", render_elicitation_schema(cast("Any", schema)))
    except TypeError as error:
        raise InvalidValue(f"nobody can be asked for a {schema.__name__}: {error}") from error


def read_reply(answer: Json, schema: type[T] | Mapping[str, Json]) -> Reply[T]:
    """The reply in an answer: `{"action": "accept", "content": {...}}`.

    Raises:
        InvalidValue: it has another shape, or its content is not what was asked for.
    """
    if not isinstance(answer, Mapping) or answer.get("action") not in ACTIONS:
        raise InvalidValue('an answer is {"action": "accept" | "decline" | "cancel", "content": …}')
    action, content = str(answer["action"]), answer.get("content")
    value: Any = None
    if action == "accept":
        value = content if isinstance(schema, Mapping) else _read_model(content, schema)
    return Reply(action, content, value)


def _read_model(content: Json, model: Any) -> object:  # noqa: ANN401 - any pydantic model
    try:
        return model.model_validate(content)
    except ValueError as error:
        raise InvalidValue(f"the answer is not a {model.__name__}: {error}") from error


def result_of(task_id: str, ended: Ended) -> Json:
    """The result of a task that has ended.

    Raises:
        TaskFailed: it has none, or it reports an error.
    """
    if ended.phase == "completed" and not ended.is_error:
        return ended.outcome
    raise TaskFailed(task_id, ended.phase, ended.message or "without a reason", ended.outcome)


REFUSED = "error"
"""The one field of what is kept as an answer where the caller had none but an error. No answer has only this."""


def check_may_ask(caller: Payload | None, kind: InputKind, request: Json) -> None:
    """Refuse a question that the caller said it can't be asked: it would stay open for good.

    What a caller can do is among what the server wrote down of the call, as `capabilities`; where nothing was written,
    anything may be asked.

    Raises:
        ToolError: for the caller to read.
    """
    known = decode(caller) if caller is not None else None
    capabilities = known.get("capabilities") if isinstance(known, Mapping) else None
    missing = missing_capability(capabilities, kind, request) if isinstance(capabilities, Mapping) else None
    if missing is not None:
        raise ToolError(f"this tool has to ask something, and its caller did not declare the capability {missing}")


def missing_capability(capabilities: Mapping[str, Json], kind: InputKind, request: Json) -> str | None:
    """What a caller would have had to declare to be asked this; None if it may be asked."""
    declared = capabilities.get(kind)
    if kind is InputKind.ELICITATION and isinstance(declared, Mapping) and isinstance(request, Mapping):
        mode = str(request.get("mode", "form"))
        # One that names no way at all is asked with forms: there was nothing else once.
        if mode not in (declared or {"form": {}}):
            return f"{kind}.{mode}"
    takes_tools = isinstance(declared, Mapping) and "tools" in declared
    if kind is InputKind.SAMPLING and isinstance(request, Mapping) and declared is not None and not takes_tools:
        has_tools = any(request.get(name) is not None for name in ("tools", "toolChoice"))
        return f"{kind}.tools" if has_tools else None
    return str(kind) if declared is None else None


def check_answer(question: InputRequest, answer: Json) -> None:
    """Refuse an answer that does not fit its question.

    Raises:
        InvalidValue: it says what is wrong with it. The question stays open.
    """
    what = f"the answer to {question.key!r}"
    if not isinstance(answer, Mapping):
        raise InvalidValue(f"{what} must be an object, not {type(answer).__name__}")
    match question.kind:
        case InputKind.ELICITATION:
            _check_elicited(what, question, answer)
        case InputKind.SAMPLING:
            is_message = isinstance(answer.get("model"), str) and isinstance(answer.get("content"), Mapping | list)
            if not is_message or answer.get("role") not in ("user", "assistant"):
                raise InvalidValue(f"{what} is what a model said: an object with role, content and model")
        case InputKind.ROOTS:
            if not isinstance(answer.get("roots"), list):
                raise InvalidValue(f"{what} is an object with a list of roots")
        case _:
            assert_never(question.kind)


def refusal(error: ProtocolError) -> Json:
    """What is kept as the answer of a caller that answered with an error."""
    told: dict[str, Any] = {"code": error.code, "message": str(error), "data": error.data}
    return {REFUSED: {name: value for name, value in told.items() if value is not None}}


def read_answer(answer: Json) -> Json:
    """An answer as it was given.

    Raises:
        ProtocolError: the caller answered with it.
    """
    error = answer.get(REFUSED) if isinstance(answer, Mapping) and len(answer) == 1 else None
    if isinstance(error, Mapping):
        code = error.get("code")
        raise ProtocolError(str(error.get("message")), code if isinstance(code, int) else 0, error.get("data"))
    return answer


def _check_elicited(what: str, question: InputRequest, answer: Mapping[str, Json]) -> None:
    action, content = answer.get("action"), answer.get("content")
    if action not in ACTIONS:
        raise InvalidValue(f'{what} is {{"action": "accept", "content": …}} or has the action "decline" or "cancel"')
    if action == "accept":
        request = decode(question.request)
        assert isinstance(request, Mapping)  # noqa: S101 - we wrote it
        # What is asked for by sending somebody to a page has no schema, and no content.
        if "requestedSchema" in request:
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
