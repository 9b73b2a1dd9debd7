"""What comes back to whoever asked for something: the answer to a question, the result of a task."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from raincheck.core.payload import Json
from raincheck.engine.desk import Ended
from raincheck.errors import InvalidValue, TaskFailed

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
