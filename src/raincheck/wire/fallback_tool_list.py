"""The tools by which callers without tasks go on with one, as they are listed: for a model to read, so in few words."""

from collections.abc import Mapping
from typing import Any, cast

from raincheck.core.payload import Json
from raincheck.wire.fallback_text import Telling, in_words

TASK_ID: Json = {"type": "string", "description": "As told by the answer that named the task."}

READS: Json = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
STOPS: Json = {"destructiveHint": True, "idempotentHint": True, "openWorldHint": False}
ANSWERS: Json = {"destructiveHint": True, "openWorldHint": False}
"""To say yes may destroy something."""

TASK_SCHEMA: Json = {
    "type": "object",
    "description": "The call goes on as a task: its result comes with the next call.",
    "properties": {"task_id": {"type": "string"}, "status": {"type": "string"}, "next": {"type": "object"}},
    "required": ["task_id", "status"],
}
"""What the structured content of an answer is that stands for a task."""


DATA = ("const", "default", "enum", "examples")
"""Parts of a schema that are no schemas."""

REFERS = ("$dynamicRef", "$ref")
"""Parts of a schema that name another, perhaps by where it is."""

BY_NAME = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
"""Parts of a schema that are schemas by names, which may be the names of parts."""


def listed(telling: Telling, *, may_list: bool = True) -> list[dict[str, Any]]:
    """All five. Of callers that can't be told apart, no tasks can be found."""
    names, wait = telling.tools, in_words(telling.wait)
    of_task = _takes({"task_id": TASK_ID}, "task_id")
    of_any = _takes(
        {
            "task_id": {"type": "string", "description": "Leave it out to find your latest tasks."},
            "tool": {"type": "string", "description": "Only tasks of this tool."},
        }
    )
    of_answer = _takes(
        {
            "task_id": TASK_ID,
            "answer": {"type": "object", "description": "What was asked for, field by field."},
            "key": {"type": "string", "description": "Which question, if there are several."},
            "action": {
                "type": "string",
                "enum": ["accept", "decline", "cancel"],
                "description": "decline: the user refuses. cancel: they give no answer.",
            },
        },
        "task_id",
    )
    # What is given beside the answer would be lost, and may be the answer.
    of_answer = {**of_answer, "additionalProperties": False}
    waits = f"Wait for a task's result. Returns when the task ends or asks something, after {wait} at the latest."
    find = ", or find a lost task_id" if may_list else ""
    looks = f"See how far a task is{find}. To get a result, call {names.wait} instead: it waits."
    return [
        _tool(names.wait, waits, of_task, READS),
        _tool(names.status, looks, of_any if may_list else of_task, READS),
        _tool(names.result, f"Read again the result of a task that has ended. Else use {names.wait}.", of_task, READS),
        _tool(names.cancel, "Stop a task for good, when its result is not wanted any more.", of_task, STOPS),
        _tool(names.answer, "Answer what a task asks, then wait for its result.", of_answer, ANSWERS),
    ]


def may_be_task(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as it is listed for those whose call may be answered with a task's id: its output is either."""
    schema: Mapping[str, Any] | None = tool.get("outputSchema")
    if schema is None:
        return dict(tool)
    own = {name: value for name, value in schema.items() if name != "$schema"}
    dialect = {name: value for name, value in schema.items() if name == "$schema"}
    return {**tool, "outputSchema": {**dialect, "type": "object", "anyOf": [_moved(own), TASK_SCHEMA]}}


def _moved(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    """The same schema, in the first place of `anyOf`: what it refers to by where that is, is somewhere else then."""
    if isinstance(schema, list):
        return [_moved(one) for one in cast("list[Any]", schema)]
    # One with an id of its own refers to places in itself, wherever it is.
    if not isinstance(schema, Mapping):
        return schema
    parts = cast("Mapping[str, Any]", schema)
    return parts if "$id" in parts else {name: _moved_part(name, value) for name, value in parts.items()}


def _moved_part(name: str, value: Any) -> Any:  # noqa: ANN401 - likewise
    if name in DATA:
        return value
    if name in BY_NAME and isinstance(value, Mapping):
        return {key: _moved(one) for key, one in cast("Mapping[str, Any]", value).items()}
    if name in REFERS and isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return f"#/anyOf/0{value[1:]}"
    return _moved(value)


def _takes(properties: Mapping[str, Json], *required: str) -> dict[str, Json]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _tool(name: str, description: str, schema: Json, annotations: Json) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": schema, "annotations": annotations}
