"""Tracebacks as text, in the log and in a task's history.

A handler renders `exc_info` in its own way. The one that the `mcp` SDK installs takes 20 ms or more for each traceback,
on the event loop. As part of the message, a traceback is cheap for every handler.
"""

import logging
import traceback
from dataclasses import dataclass

LOGGED_LIMIT = 4_000
"""Maximum characters of a traceback in the log. Handlers of rich need 2 ms for 1,000."""

OMITTED = "\n[...]\n"


def format_traceback(error: BaseException) -> str:
    """Format an error, its causes and their stacks, as Python prints them."""
    return "".join(traceback.format_exception(error)).rstrip("\n")


def text_logger(name: str) -> logging.Logger:
    """Return the logger of this name. It passes the traceback of an error to handlers as text, not as `exc_info`.

    A record may carry the text itself, as `extra={"traceback": text}`.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_traceback_as_text)
    return logger


@dataclass(frozen=True, slots=True)
class FailureMessage:
    """A log message, followed by a traceback on the lines below it."""

    message: str
    traceback: str

    def __str__(self) -> str:
        return f"{self.message}\n{self.traceback}"


def _traceback_as_text(record: logging.LogRecord) -> bool:
    text: str | None = vars(record).pop("traceback", None)
    if text is None and record.exc_info and record.exc_info[1] is not None:
        text = format_traceback(record.exc_info[1])
    if text is not None:
        record.msg = FailureMessage(record.getMessage(), _shortened(text))  # type: ignore[assignment] # any object may be one
        record.args = record.exc_info = None
    return True


def _shortened(text: str) -> str:
    """Leave out the middle of a long traceback: the first cause is at its start, the last call at its end."""
    if len(text) <= LOGGED_LIMIT:
        return text
    half = (LOGGED_LIMIT - len(OMITTED)) // 2
    return f"{text[:half]}{OMITTED}{text[-half:]}"
