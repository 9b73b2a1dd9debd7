"""What a body's process says last: what the body returned, what it raised, or that it has stopped as it was told."""

import asyncio
import traceback
from typing import Any

from raincheck import errors
from raincheck.core.payload import encode
from raincheck.engine.finding import BodyPlace
from raincheck.engine.frames import describe_error, pack, plain_text
from raincheck.engine.sync_context import BodyStopped
from raincheck.errors import NotJson, TooLarge, ToolError

LONGEST_TEXT = 256 * 1024
"""The most characters of a message or a traceback that are passed on."""

STOPPED = pack({"stopped": encode(True)})


def say_returned(result: Any, place: BodyPlace) -> bytes:  # noqa: ANN401 - whatever the body returned
    """That the body returned this; or, if this can't be passed on, what is wrong with it."""
    what = f"the result of tool {place.tool!r}"
    try:
        return pack({"returned": encode(result, what=what)}, what=what)
    except (NotJson, TooLarge) as error:
        return say_raised(error, place)


def say_raised(error: BaseException, place: BodyPlace) -> bytes:
    """That the body raised this."""
    if isinstance(error, BodyStopped | asyncio.CancelledError):
        return STOPPED
    try:
        return pack({"raised": encode(_describe(error, place))}, what=f"a {type(error).__name__}")
    except (NotJson, TooLarge) as refused:
        return pack({"raised": encode(_describe(refused, place))})


def _describe(error: BaseException, place: BodyPlace) -> dict[str, Any]:
    if isinstance(error, ToolError):
        encode(error.content, what="the content of a ToolError")  # type: ignore[arg-type] # it refuses what is not JSON
    is_ours = isinstance(error, ToolError) or errors.has(type(error))
    return {
        "type": type(error).__qualname__,
        "message": _shorten(_text_of(error)),
        "traceback": _shorten("".join(traceback.format_exception(error))),
        "kinds": [f"{place.module_of(kind)}.{kind.__qualname__}" for kind in type(error).__mro__],
        "ours": describe_error(error) if is_ours and isinstance(error, Exception) else None,
    }


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that can't be read is still an error
        return "it can't say what it is: its __str__ fails"


def _shorten(text: str) -> str:
    return plain_text(text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…")
