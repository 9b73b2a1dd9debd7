"""The result of a tool as its caller gets it, from whatever its body left."""

import json
from collections.abc import Mapping
from typing import TypeGuard

from raincheck.core.payload import Json
from raincheck.core.records import Task
from raincheck.wire.content import is_content

RELATED_TASK = "io.modelcontextprotocol/related-task"
"""Says which task a message belongs to. A result that stands inside its task must not say it."""

INPUT_KEY = "raincheck/input-key"
"""The `_meta` key under which a 2025-11-25 input request carries its own key. Asked again, it carries the same one."""

KEY_IN_META = "raincheck/idempotency-key"
"""In the `_meta` of a call: what tells it from others, so that it is begun once."""

TAKES_KEYS = "raincheck/takes-keys"
"""In the `_meta` of a request for the list of tools: asks which take keys of this caller; in theirs, the answer."""

FIELDS = frozenset({"content", "structuredContent", "isError", "resultType", "_meta"})
"""What a result may have."""


def tool_result(task: Task, outcome: Json) -> dict[str, Json]:
    """The result of a completed task: as it was stored, if it was stored as one; else wrapped as one."""
    result = dict(outcome) if _is_tool_result(outcome) else _wrapped(task, outcome)
    meta = result.get("_meta")
    if isinstance(meta, Mapping) and RELATED_TASK in meta:
        result["_meta"] = {name: value for name, value in meta.items() if name != RELATED_TASK}
    if task.is_error:
        result["isError"] = True
    return result


def _is_tool_result(outcome: Json) -> TypeGuard[Mapping[str, Json]]:
    """Whether it is one, and not only something else of a tool's own that also has content."""
    if not isinstance(outcome, Mapping) or not outcome.keys() <= FIELDS:
        return False
    is_error, meta = outcome.get("isError", False), outcome.get("_meta", {})
    return is_content(outcome.get("content")) and isinstance(is_error, bool) and isinstance(meta, Mapping)


def _wrapped(task: Task, outcome: Json) -> dict[str, Json]:
    text = outcome if isinstance(outcome, str) else json.dumps(outcome, ensure_ascii=False)
    structured: Json = outcome if isinstance(outcome, Mapping) else {"result": outcome}
    if not task.is_error:
        return {"content": [_text(text)], "structuredContent": structured}
    if isinstance(outcome, Mapping) and set(outcome) == {"message"}:
        return {"content": [_text(str(outcome["message"]))]}
    # The message does not reach the model in any other way.
    texts = dict.fromkeys([task.status_message or text, text])
    return {"content": [_text(one) for one in texts], "structuredContent": structured}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
