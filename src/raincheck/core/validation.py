"""Checks that make text and times from outside safe for any store, or refuse them."""

from datetime import datetime

from raincheck.errors import InvalidValue, TooLarge

NAME_LIMIT = 512
MESSAGE_LIMIT = 2_000


def check_name(name: str, *, what: str) -> None:
    """Check that a name can be stored unchanged.

    Raises:
        InvalidValue: it is empty or has characters that can't be stored.
        TooLarge: it is too long.
    """
    if not name:
        raise InvalidValue(f"{what} must not be empty")
    if len(name) > NAME_LIMIT:
        raise TooLarge(what, len(name), NAME_LIMIT, "characters")
    if "\0" in name or not _is_encodable(name):
        raise InvalidValue(f"{what} {name!r} has a NUL or a lone surrogate: remove it")


def check_aware(moment: datetime | None) -> None:
    """Check that a time can be compared with other times.

    Raises:
        InvalidValue: it has no time zone.
    """
    if moment is not None and moment.tzinfo is None:
        raise InvalidValue(f"{moment} has no time zone: use aware times, such as SystemClock().now()")


def clip(message: str | None) -> str | None:
    """Shorten and repair a message for people, rather than refuse it."""
    if message is None:
        return None
    if len(message) <= MESSAGE_LIMIT and message.isascii() and "\0" not in message:
        return message
    if len(message) > MESSAGE_LIMIT:
        message = message[: MESSAGE_LIMIT - 1] + "…"
    message = message.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return message if _is_encodable(message) else message.encode(errors="replace").decode()


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
