"""Log what connections do to a server as one line without a traceback, whatever handlers the application has.

Rendering a traceback can block the event loop for as long as a hundred requests take. Handlers are the application's
own, so filters on the loggers drop such a record before any handler receives it, and log a line in its place.

- A client that disconnects while it sends a request is no fault of the server. The SDK (`mcp` 2.3) and uvicorn log an
  error. Remove this filter when the SDK answers a `ClientDisconnect` itself: `test_transport_log.py` fails then.
- Without a file descriptor left, asyncio logs an error for each connection that it can't accept, two thousand at once
  in Python 3.11. The handler of rich, which the SDK installs, needs a descriptor to render the first, and its own error
  ended the process. Remove this filter when the SDK installs another handler.
"""

import errno
import logging
import time

from starlette.requests import ClientDisconnect

DISCONNECT_LOGGERS = ("mcp.server.streamable_http", "uvicorn.error")
"""The loggers of the 2025-11-25 transport, and of the HTTP server, which receives the error in 2026-07-28."""

ACCEPT_LOGGER = "asyncio"

OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors after which asyncio tries again to accept connections, a second later."""

REPORT_INTERVAL = 10.0
"""Seconds between two lines about connections that can't be accepted."""

logger = logging.getLogger(__name__)


def install_filters() -> None:
    """Filter those loggers. Calls after the first change nothing."""
    for name in DISCONNECT_LOGGERS:
        logging.getLogger(name).addFilter(_replace_disconnect)
    asyncio_logger = logging.getLogger(ACCEPT_LOGGER)
    if not any(isinstance(one, _AcceptErrors) for one in asyncio_logger.filters):
        asyncio_logger.addFilter(_AcceptErrors())


def _replace_disconnect(record: logging.LogRecord) -> bool:
    if not record.exc_info or not isinstance(record.exc_info[1], ClientDisconnect):
        return True
    logger.debug("a client disconnected before it had sent its whole request")
    return False


class _AcceptErrors(logging.Filter):
    """Replaces the errors of accepting connections by a warning now and then."""

    def __init__(self) -> None:
        super().__init__()
        self._reported_at: float | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        is_accept_error = isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES
        if not is_accept_error or not record.getMessage().startswith("socket.accept()"):
            return True
        now = time.monotonic()
        if self._reported_at is None or now >= self._reported_at + REPORT_INTERVAL:
            self._reported_at = now
            logger.warning("new connections wait: %s. Bound them in a proxy, or raise `ulimit -n`", error)
        return False
