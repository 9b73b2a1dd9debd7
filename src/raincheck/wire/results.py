"""Build the tool results that callers receive from the outcomes that task bodies stored.

An outcome that is a valid tool result by the rules of both generations is sent unchanged. Any other outcome is wrapped.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeGuard

from raincheck.core.records import Task
from raincheck.core.values import Json
from raincheck.wire.fields import RELATED_TASK

Rule: TypeAlias = Callable[[Json], bool]


def _list_of(rule: Rule) -> Rule:
    """Return the rule for an array of which each item obeys a rule."""

    def is_valid(value: Json) -> bool:
        return isinstance(value, Sequence) and not isinstance(value, str) and all(map(rule, value))

    return is_valid


def _object(required: Mapping[str, Rule], optional: Mapping[str, Rule]) -> Rule:
    """Return the rule for an object with these fields. Its other fields may have any value."""
    rules = {**optional, **required}

    def is_valid(value: Json) -> bool:
        if not isinstance(value, Mapping) or not required.keys() <= value.keys():
            return False
        # A loop, because every result is checked and a generator takes twice as long.
        for name, item in value.items():
            rule = rules.get(name)
            if rule is not None and not rule(item):
                return False
        return True

    return is_valid


def _one_of(*choices: str) -> Rule:
    return lambda value: value in choices


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_object(value: Json) -> bool:
    return isinstance(value, Mapping)


def _is_whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_fraction(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


RESOURCES = [
    _object({"uri": _is_text, field: _is_text}, {"mimeType": _is_text, "_meta": _is_object})
    for field in ("text", "blob")
]
"""The rules for an embedded resource, which obeys one of them."""


def _is_resource(value: Json) -> bool:
    return any(rule(value) for rule in RESOURCES)


ICON = _object(
    {"src": _is_text}, {"mimeType": _is_text, "sizes": _list_of(_is_text), "theme": _one_of("light", "dark")}
)
ANNOTATIONS = _object(
    {},
    {"audience": _list_of(_one_of("user", "assistant")), "priority": _is_fraction, "lastModified": _is_text},
)
SHARED: dict[str, Rule] = {"_meta": _is_object, "annotations": ANNOTATIONS}
LINK = {"title": _is_text, "description": _is_text, "mimeType": _is_text, "size": _is_whole, "icons": _list_of(ICON)}

BLOCKS: dict[str, Rule] = {
    "text": _object({"text": _is_text}, SHARED),
    "image": _object({"data": _is_text, "mimeType": _is_text}, SHARED),
    "audio": _object({"data": _is_text, "mimeType": _is_text}, SHARED),
    "resource": _object({"resource": _is_resource}, SHARED),
    "resource_link": _object({"uri": _is_text, "name": _is_text}, {**SHARED, **LINK}),
}
"""The rule for each type of content block."""


def _is_block(block: Json) -> bool:
    kind = block.get("type") if isinstance(block, Mapping) else None
    rule = BLOCKS.get(kind) if isinstance(kind, str) else None
    return rule is not None and rule(block)


is_content = _list_of(_is_block)
"""The rule for a list of content blocks of known types with valid fields."""

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
