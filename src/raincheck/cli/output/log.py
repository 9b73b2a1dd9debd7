"""The log of `serve` and `worker`: one line for each record on stderr, as text or as JSON."""

import copy
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from raincheck.cli.exit_codes import echo_err
from raincheck.operations.describe import printable_lines
from raincheck.tracebacks import FailureMessage, format_traceback

if TYPE_CHECKING:
    from rich.logging import RichHandler

TIME = "%Y-%m-%dT%H:%M:%SZ"

REPEAT_WINDOW = 10.0
"""Seconds within which repeated warnings and errors are written once."""

MAX_TRACKED = 1_000
"""The maximum number of distinct warnings and errors that are tracked per window.

Further records are always written.
"""

REPEAT_LENGTH = 300
"""The maximum number of characters of a repeated message that are shown with its count."""

NOT_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
"""Attributes of a record that are written under a different name, or not at all."""


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        metavar="text|json",
        help="The format of the log on stderr: a line (text, the default) or a JSON object for each record.",
    ),
]


class TextFormatter(logging.Formatter):
    """Time, level, logger and message. Further lines are indented, and control characters escaped."""

    converter = time.gmtime

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", TIME)

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record)).replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """An object with time, level, logger, message, exception, and the extra fields of the record."""

    converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        message, text = record.getMessage(), None
        failure: object = record.msg
        if isinstance(failure, FailureMessage):
            message, text = failure.message, failure.traceback
        elif record.exc_info:
            text = self.formatException(record.exc_info)
        fields: dict[str, Any] = {
            "time": self.formatTime(record, TIME),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        if text is not None:
            fields["exception"] = text
        if record.stack_info:
            fields["stack"] = record.stack_info
        for name, value in _extra_fields(record).items():
            fields[f"extra_{name}" if name in fields else name] = _to_json(value)
        return json.dumps(fields)


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that the caller added to a record."""
    return {name: value for name, value in vars(record).items() if name not in NOT_FIELDS}


def _to_json(value: object) -> object:
    """Return a value as JSON, or else its representation."""
    try:
        return json.loads(json.dumps(value, allow_nan=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


Schedule = Callable[[float, Callable[[], None]], None]


def _start_timer(seconds: float, action: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


class LogHandler(logging.StreamHandler[TextIO]):
    """Write records to a stream.

    Within a window, identical warnings and errors are written once and counted, and a traceback is written once.
    """

    def __init__(self, stream: TextIO, schedule: Schedule = _start_timer) -> None:
        super().__init__(stream)
        self._schedule = schedule
        # Handlers emit under a lock, so no two threads change this at once.
        self._seen: dict[tuple[object, ...], dict[str, Any]] = {}
        self._tracebacks: set[str] = set()
        # The timer that would end the window does not run in a forked process.
        os.register_at_fork(after_in_child=self._forget)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            is_repeat = record.levelno >= logging.WARNING and self._count_repeat(record)
            if isinstance(self.formatter, TextFormatter):
                record = self._shorten_repeated_traceback(record)
        except Exception:  # noqa: BLE001 - logging must not fail: writing the record reports the error
            is_repeat = False
        if not is_repeat:
            super().emit(record)

    def _shorten_repeated_traceback(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record, without its traceback if the same one was written in this window.

        Attempts of different tasks that fail alike each have a line with their ids. In JSON a record is one object with
        its own exception.
        """
        failure: object = record.msg
        if not isinstance(failure, FailureMessage) or not self._seen:
            return record
        if failure.traceback not in self._tracebacks:
            if len(self._tracebacks) < MAX_TRACKED:
                self._tracebacks.add(failure.traceback)
            return record
        error = failure.traceback.rpartition("\n")[2]
        shortened = copy.copy(record)
        shortened.msg = f"{failure.message}: {error} (same traceback as before)"
        return shortened

    def _count_repeat(self, record: logging.LogRecord) -> bool:
        """Return whether an identical record was written in this window."""
        message = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        traceback = None if error is None else hash(format_traceback(error))
        key = (record.name, record.levelno, hash(message), traceback, repr(_extra_fields(record)))
        if key in self._seen:
            self._seen[key]["repeated"] += 1
            return True
        if not self._seen:
            self._schedule(REPEAT_WINDOW, self._end_window)
        if len(self._seen) < MAX_TRACKED:
            facts = {"name": record.name, "levelno": record.levelno, "levelname": record.levelname}
            self._seen[key] = {**facts, "msg": message.partition("\n")[0][:REPEAT_LENGTH], "repeated": 0}
        return False

    def _end_window(self) -> None:
        self.acquire()
        try:
            seen = list(self._seen.values())
            self._forget()
            for facts in seen:
                if facts["repeated"]:
                    message = f"repeated {facts['repeated']} times within {REPEAT_WINDOW:g} s: {facts['msg']}"
                    super().emit(logging.makeLogRecord({**facts, "msg": message}))
        finally:
            self.release()

    def _forget(self) -> None:
        self._seen.clear()
        self._tracebacks.clear()

    def close(self) -> None:
        self._end_window()
        super().close()


def install_handler(log_format: LogFormat | None, *, is_quiet: bool) -> None:
    """Log on stderr in this format, in place of the handlers that the SDK and FastMCP install for a server.

    Those handlers wrap lines at the width of a terminal, and block the event loop while they render a traceback.
    Handlers that the loaded program installed itself stay. `is_quiet` is for stdio, where hosts show each line of
    stderr as an error.
    """
    # Imported here, since this takes a tenth of a second and most commands don't need it. A server has already
    # imported it.
    from rich.logging import RichHandler

    root, fastmcp = logging.getLogger(), logging.getLogger("fastmcp")
    sdk_handlers = [handler for handler in root.handlers if isinstance(handler, RichHandler) and _is_of_sdk(handler)]
    fastmcp_handlers = [handler for handler in fastmcp.handlers if isinstance(handler, RichHandler)]
    other_handlers = [handler for handler in root.handlers if handler not in sdk_handlers]
    for handler in sdk_handlers:
        root.removeHandler(handler)
    for handler in fastmcp_handlers:
        fastmcp.removeHandler(handler)
        fastmcp.propagate = True
    # If the SDK installed a handler for stderr, other handlers, such as exporters of logs, don't write to stderr.
    if other_handlers and not sdk_handlers and not fastmcp_handlers:
        if log_format is not None:
            echo_err("--log-format has no effect: the program configures logging itself")
        return
    handler = LogHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    handler.setLevel(logging.WARNING if is_quiet else logging.NOTSET)
    root.addHandler(handler)
    if root.level == logging.WARNING and not sdk_handlers:
        root.setLevel(logging.INFO)


def _is_of_sdk(handler: "RichHandler") -> bool:
    """Return whether the SDK, and not a program, made the handler. Its format and its console identify it."""
    style = handler.formatter and (vars(handler.formatter)["_fmt"], handler.formatter.datefmt)
    return handler.rich_tracebacks and handler.console.stderr and style == ("%(message)s", None)
