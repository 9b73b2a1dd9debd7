"""Build the tool results that callers receive from the outcomes that task bodies stored.

An outcome that is a valid tool result by the rules of both generations is sent unchanged. Any other outcome is wrapped.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeGuard

from raincheck.core.records import Task
from raincheck.core.values import Json

Rule: TypeAlias = Callable[[Json], bool]


def is_content(value: Json) -> bool:
    """Return whether the value is a list of content blocks of known types with valid fields."""
    return _is_list(value, _is_block)


def _is_block(block: Json) -> bool:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str) or kind not in BLOCKS:
        return False
    return _has(block, *BLOCKS[kind])


def _has(value: Json, required: Mapping[str, Rule], optional: Mapping[str, Rule]) -> bool:
    if not isinstance(value, Mapping):
        return False
    if not required.keys() <= value.keys():
        return False
    # A loop, because every result is checked and a generator takes twice as long.
    for name, item in value.items():
        rule = required.get(name) or optional.get(name)
        if rule is not None and not rule(item):
            return False
    return True


def _is_list(value: Json, rule: Rule) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(rule, value))


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_object(value: Json) -> bool:
    return isinstance(value, Mapping)


def _is_whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_fraction(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_role(value: Json) -> bool:
    return value in ("user", "assistant")


def _is_annotations(value: Json) -> bool:
    audience: Rule = lambda roles: _is_list(roles, _is_role)  # noqa: E731 - a rule, like the others
    return _has(value, {}, {"audience": audience, "priority": _is_fraction, "lastModified": _is_text})


def _is_icons(value: Json) -> bool:
    return _is_list(value, _is_icon)


def _is_icon(value: Json) -> bool:
    optional: dict[str, Rule] = {"mimeType": _is_text, "sizes": _is_texts, "theme": lambda it: it in ("light", "dark")}
    return _has(value, {"src": _is_text}, optional)


def _is_texts(value: Json) -> bool:
    return _is_list(value, _is_text)


def _is_resource(value: Json) -> bool:
    optional: dict[str, Rule] = {"mimeType": _is_text, "_meta": _is_object}
    return any(_has(value, {"uri": _is_text, field: _is_text}, optional) for field in ("text", "blob"))


SHARED: dict[str, Rule] = {"_meta": _is_object, "annotations": _is_annotations}

BLOCKS: dict[str, tuple[dict[str, Rule], dict[str, Rule]]] = {
    "text": ({"text": _is_text}, SHARED),
    "image": ({"data": _is_text, "mimeType": _is_text}, SHARED),
    "audio": ({"data": _is_text, "mimeType": _is_text}, SHARED),
    "resource": ({"resource": _is_resource}, SHARED),
    "resource_link": (
        {"uri": _is_text, "name": _is_text},
        SHARED
        | {"title": _is_text, "description": _is_text, "mimeType": _is_text, "size": _is_whole, "icons": _is_icons},
    ),
}
"""The required and the optional fields of each type of content block."""

RELATED_TASK = "io.modelcontextprotocol/related-task"
"""The `_meta` key that names the task a message belongs to. A result inside its own task must not have it."""

INPUT_META_KEY = "raincheck/input-key"
"""The `_meta` key under which a 2025-11-25 input request carries its key. A repeated request has the same key."""

IDEMPOTENCY_META_KEY = "raincheck/idempotency-key"
"""The `_meta` key for the idempotency key of a call. The server runs calls with the same key only once."""

SUPPORTS_KEYS_META_KEY = "raincheck/takes-keys"
"""The `_meta` key that asks, in `tools/list`, which tools accept this caller's keys, and that marks such a tool."""

RESULT_FIELDS = frozenset({"content", "structuredContent", "isError", "resultType", "_meta"})
"""The fields that a tool result may have."""


def tool_result(task: Task, outcome: Json) -> dict[str, Json]:
    """Return the result of a completed task: its outcome if that is a tool result, else the outcome wrapped as one."""
    result = dict(outcome) if _is_tool_result(outcome) else _wrap(task, outcome)
    meta = result.get("_meta")
    if isinstance(meta, Mapping) and RELATED_TASK in meta:
        result["_meta"] = {name: value for name, value in meta.items() if name != RELATED_TASK}
    if task.is_error:
        result["isError"] = True
    return result


def _is_tool_result(outcome: Json) -> TypeGuard[Mapping[str, Json]]:
    """Return whether the outcome is a tool result, not merely a tool's own object that also has `content`."""
    if not isinstance(outcome, Mapping) or not outcome.keys() <= RESULT_FIELDS:
        return False
    is_error, meta = outcome.get("isError", False), outcome.get("_meta", {})
    return is_content(outcome.get("content")) and isinstance(is_error, bool) and isinstance(meta, Mapping)


def _wrap(task: Task, outcome: Json) -> dict[str, Json]:
    text = outcome if isinstance(outcome, str) else json.dumps(outcome, ensure_ascii=False)
    structured: Json = outcome if isinstance(outcome, Mapping) else {"result": outcome}
    if not task.is_error:
        return {"content": [_text(text)], "structuredContent": structured}
    if isinstance(outcome, Mapping) and set(outcome) == {"message"}:
        return {"content": [_text(str(outcome["message"]))]}
    # The error text reaches the model only as content.
    texts = dict.fromkeys([task.status_message or text, text])
    return {"content": [_text(item) for item in texts], "structuredContent": structured}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
