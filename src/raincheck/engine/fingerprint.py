"""What tells the arguments of a checkpoint from others, without keeping them."""

import hashlib
import json
from typing import Any, cast


def fingerprint(kind: str, *parts: object) -> str:
    """The kind of a checkpoint, and a digest of what it was asked for with.

    What is not JSON (an open connection, say) counts by its type alone: it is not the same object in another attempt.
    """
    try:
        text = json.dumps(_plain(parts), sort_keys=True, separators=(",", ":"))
    except RecursionError:
        # Deep, or part of itself: not JSON either.
        text = " ".join(type(part).__qualname__ for part in parts)
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _plain(value: Any) -> object:  # noqa: ANN401 - anything that can be an argument
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("list[Any]", value)]
    return f"<{type(value).__qualname__}>"
