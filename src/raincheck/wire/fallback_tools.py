"""List the fallback tools for callers without tasks. A model reads the descriptions, so they are short."""

from collections.abc import Mapping
from typing import Any, cast

from raincheck.core.values import Json
from raincheck.wire.fallback_text import FallbackMessages, format_duration

TASK_ID: Json = {"type": "string", "description": "The task_id from an earlier answer."}

READ_ONLY: Json = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
DESTRUCTIVE: Json = {"destructiveHint": True, "idempotentHint": True, "openWorldHint": False}
ANSWERS: Json = {"destructiveHint": True, "openWorldHint": False}
"""Accepting a question may have a destructive effect."""

TASK_SCHEMA: Json = {
    "type": "object",
    "description": "The call continues as a task. A later call returns its result.",
    "properties": {"task_id": {"type": "string"}, "status": {"type": "string"}, "next": {"type": "object"}},
    "required": ["task_id", "status"],
}
"""The schema of the structured content of an answer that stands for a task."""

DATA_KEYWORDS = ("const", "default", "enum", "examples")
"""Keywords of a schema whose values are not schemas."""

REF_KEYWORDS = ("$dynamicRef", "$ref")
"""Keywords of a schema that refer to another schema, perhaps by its location."""

MAPPING_KEYWORDS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
"""Keywords of a schema that map names to schemas. These names may coincide with keywords."""


def list_fallback_tools(messages: FallbackMessages, *, may_list: bool = True) -> list[dict[str, Any]]:
    """Return all five fallback tools. Callers that the server can't tell apart can't list tasks."""
    names, wait = messages.tools, format_duration(messages.wait)
    of_task = _input_schema({"task_id": TASK_ID}, "task_id")
    of_any = _input_schema(
        {
            "task_id": {"type": "string", "description": "Omit it to list your latest tasks."},
            "tool": {"type": "string", "description": "Only tasks of this tool."},
        }
    )
    of_answer = _input_schema(
        {
            "task_id": TASK_ID,
            "answer": {"type": "object", "description": "The requested values, field by field."},
            "key": {"type": "string", "description": "The key of the question, if there are several."},
            "action": {
                "type": "string",
                "enum": ["accept", "decline", "cancel"],
                "description": "decline: the user refuses. cancel: the user gives no answer.",
            },
        },
        "task_id",
    )
    # Reject other arguments: they would be ignored, and may contain the answer.
    of_answer = {**of_answer, "additionalProperties": False}
    wait_description = (
        f"Wait for a task's result. Returns when the task ends or asks a question, after {wait} at the latest."
    )
    find = ", or find a lost task_id" if may_list else ""
    status_description = f"Check the progress of a task{find}. To get its result, call {names.wait} instead: it waits."
    return [
        _tool(names.wait, wait_description, of_task, READ_ONLY),
        _tool(names.status, status_description, of_any if may_list else of_task, READ_ONLY),
        _tool(
            names.result, f"Read the result of an ended task again. Otherwise, use {names.wait}.", of_task, READ_ONLY
        ),
        _tool(names.cancel, "Stop a task permanently, when its result is no longer needed.", of_task, DESTRUCTIVE),
        _tool(names.answer, "Answer a question that a task asks, then wait for its result.", of_answer, ANSWERS),
    ]


def allow_task_output(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool whose output schema also allows an answer that stands for a task."""
    schema: Mapping[str, Any] | None = tool.get("outputSchema")
    if schema is None:
        return dict(tool)
    own = {name: value for name, value in schema.items() if name != "$schema"}
    dialect = {name: value for name, value in schema.items() if name == "$schema"}
    return {**tool, "outputSchema": {**dialect, "type": "object", "anyOf": [_relocate_refs(own), TASK_SCHEMA]}}


def _relocate_refs(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    """Rewrite references by location in a schema that becomes the first member of `anyOf`."""
    if isinstance(schema, list):
        return [_relocate_refs(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    # The references of a schema with its own `$id` resolve inside it, wherever it is placed.
    parts = cast("Mapping[str, Any]", schema)
    return parts if "$id" in parts else {name: _relocate_keyword(name, value) for name, value in parts.items()}


def _relocate_keyword(name: str, value: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    if name in DATA_KEYWORDS:
        return value
    if name in MAPPING_KEYWORDS and isinstance(value, Mapping):
        return {key: _relocate_refs(part) for key, part in cast("Mapping[str, Any]", value).items()}
    if name in REF_KEYWORDS and isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return f"#/anyOf/0{value[1:]}"
    return _relocate_refs(value)


def _input_schema(properties: Mapping[str, Json], *required: str) -> dict[str, Json]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _tool(name: str, description: str, schema: Json, annotations: Json) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": schema, "annotations": annotations}
