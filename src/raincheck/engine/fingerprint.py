"""What can be a step, and what tells its arguments from others without keeping them."""

import hashlib
import inspect
import json
from typing import Any, cast

from raincheck.errors import InvalidValue


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


def check_step(name: str, fn: object, *, may_await: bool) -> None:
    """Refuse what can't be called as a step.

    Raises:
        InvalidValue: it says what to do.
    """
    if not callable(fn):
        if inspect.iscoroutine(fn):
            fn.close()
        raise InvalidValue(f"step {name!r} takes a function and its arguments, as in step({name!r}, load, year)")
    if not may_await and inspect.iscoroutinefunction(fn):
        raise InvalidValue(f"step {name!r} is a coroutine, and its tool a plain function: make one of them the other")
