"""Checks answers to input requests, and reads results of tasks.

An answer that does not match its request is rejected, and the request stays open.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, assert_never, cast

from raincheck.core.json_schema import InvalidSchema, SchemaValidator, check_schema
from raincheck.core.records import InputKind, InputRequest, View
from raincheck.core.values import Json, Payload, decode
from raincheck.errors import InvalidValue, ProtocolError, TaskFailed, ToolError

T = TypeVar("T")

ACTIONS = ("accept", "decline", "cancel")
"""The actions of an elicitation answer."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The user's reply to an input request: accepted with content, declined, or cancelled."""

    action: str
    """`accept`, `decline` or `cancel`."""
    content: Json
    value: T | None
    """The content as the requested type; None unless it was accepted."""

    @property
    def ok(self) -> bool:
        """Whether it was accepted."""
        return self.action == "accept"


def to_json_schema(schema: type[object] | Mapping[str, Json]) -> Json:
    """Return the JSON Schema of the requested input, given as a schema or a pydantic model.

    Raises:
        InvalidValue: it is neither of these, or a form can't ask for it.
    """
    if isinstance(schema, Mapping):
        return schema
    if not hasattr(schema, "model_json_schema"):
        raise InvalidValue(f"the schema of an input request is a JSON Schema or a pydantic model, not {schema!r}")
    # Forms support few kinds of fields, and the SDK knows how to render models as such. Its import is slow.
    from mcp.server.elicitation import render_elicitation_schema

    try:
        return cast("Json", render_elicitation_schema(cast("Any", schema)))
    except TypeError as error:
        raise InvalidValue(f"a form can't ask for a {schema.__name__}: {error}") from error


def parse_reply(answer: Json, schema: type[T] | Mapping[str, Json]) -> Reply[T]:
    """Parse the reply in an answer: `{"action": "accept", "content": {...}}`.

    Raises:
        InvalidValue: it has another shape, or its content does not match the schema.
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


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The phase and the outcome of a task that has ended."""

    phase: str
    is_error: bool
    outcome: Json
    message: str | None

    @classmethod
    def from_view(cls, view: View) -> Self:
        outcome = None if view.outcome is None else decode(view.outcome)
        return cls(view.task.phase, view.task.is_error, outcome, view.task.status_message)


def result_or_raise(task_id: str, ended: TaskOutcome) -> Json:
    """Return the result of a task that has ended.

    Raises:
        TaskFailed: the task has no result, or its result is an error.
    """
    if ended.phase == "completed" and not ended.is_error:
        return ended.outcome
    raise TaskFailed(task_id, ended.phase, ended.message or "without a reason", ended.outcome)


ERROR_KEY = "error"
"""The only field of a stored answer when the caller answered with an error. No other answer has only this field."""


def check_capability(caller: Payload | None, kind: InputKind, request: Json) -> None:
    """Reject an input request that the caller has no capability for. It would stay open forever.

    The server records the caller's capabilities with the call, as `capabilities`. If it recorded none, any request is
    allowed.

    Raises:
        ToolError: the message names the missing capability, for the caller to read.
    """
    recorded = decode(caller) if caller is not None else None
    capabilities = recorded.get("capabilities") if isinstance(recorded, Mapping) else None
    missing = missing_capability(capabilities, kind, request) if isinstance(capabilities, Mapping) else None
    if missing is not None:
        raise ToolError(f"this tool needs input from its caller, which did not declare the capability {missing}")


def missing_capability(capabilities: Mapping[str, Json], kind: InputKind, request: Json) -> str | None:
    """Return the capability that the caller would need to declare for this request; None if it is allowed."""
    declared = capabilities.get(kind)
    if kind is InputKind.ELICITATION and isinstance(declared, Mapping) and isinstance(request, Mapping):
        mode = str(request.get("mode", "form"))
        # An elicitation capability without modes means forms, the only mode that once existed.
        if mode not in (declared or {"form": {}}):
            return f"{kind}.{mode}"
    takes_tools = isinstance(declared, Mapping) and "tools" in declared
    if kind is InputKind.SAMPLING and isinstance(request, Mapping) and declared is not None and not takes_tools:
        has_tools = any(request.get(name) is not None for name in ("tools", "toolChoice"))
        return f"{kind}.tools" if has_tools else None
    return str(kind) if declared is None else None


def check_answer(input_request: InputRequest, answer: Json) -> None:
    """Reject an answer that does not match its request.

    Raises:
        InvalidValue: the message says what is wrong. The request stays open.
    """
    what = f"the answer to {input_request.key!r}"
    if not isinstance(answer, Mapping):
        raise InvalidValue(f"{what} must be an object, not {type(answer).__name__}")
    match input_request.kind:
        case InputKind.ELICITATION:
            _check_elicitation(what, input_request, answer)
        case InputKind.SAMPLING:
            is_message = isinstance(answer.get("model"), str) and isinstance(answer.get("content"), Mapping | list)
            if not is_message or answer.get("role") not in ("user", "assistant"):
                raise InvalidValue(f"{what} must be a sampling result: an object with role, content and model")
        case InputKind.ROOTS:
            if not isinstance(answer.get("roots"), list):
                raise InvalidValue(f"{what} must be an object with a list of roots")
        case _:
            assert_never(input_request.kind)


def error_answer(error: ProtocolError) -> Json:
    """Return the stored form of an answer that is an error."""
    fields: dict[str, Any] = {"code": error.code, "message": str(error), "data": error.data}
    return {ERROR_KEY: {name: value for name, value in fields.items() if value is not None}}


def unwrap_answer(answer: Json) -> Json:
    """Return an answer as the caller gave it.

    Raises:
        ProtocolError: the caller answered with this error.
    """
    error = answer.get(ERROR_KEY) if isinstance(answer, Mapping) and len(answer) == 1 else None
    if isinstance(error, Mapping):
        code = error.get("code")
        raise ProtocolError(str(error.get("message")), code if isinstance(code, int) else 0, error.get("data"))
    return answer


def _check_elicitation(what: str, input_request: InputRequest, answer: Mapping[str, Json]) -> None:
    action, content = answer.get("action"), answer.get("content")
    if action not in ACTIONS:
        raise InvalidValue(f'{what} is {{"action": "accept", "content": …}} or has the action "decline" or "cancel"')
    if action == "accept":
        request = decode(input_request.request)
        assert isinstance(request, Mapping)  # noqa: S101 - we wrote it
        # URL mode, which sends the user to a page, has no schema and no content.
        if "requestedSchema" in request:
            _check_content(what, content, request["requestedSchema"])


def _check_content(what: str, content: Json, schema: Any) -> None:  # noqa: ANN401 - any JSON Schema
    if not isinstance(content, Mapping):
        raise InvalidValue(f"{what} is accepted, so its content must be an object, not {type(content).__name__}")
    try:
        check_schema(schema)
        error = next(SchemaValidator(schema).errors(content), None)
    except InvalidSchema:
        # The request's schema is invalid, so the answer can't be checked against it.
        return
    if error is not None:
        where = f" at {error.json_path}" if error.absolute_path else ""
        raise InvalidValue(f"{what} does not match the requested schema: {error.message}{where}")
