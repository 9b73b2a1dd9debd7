"""Log a client that disconnects while it sends a request as one line at DEBUG.

That is not a fault of the server. The SDK (`mcp` 2.3) and uvicorn log it as an error with its traceback, and rendering
one can block the event loop for as long as a hundred requests take. Handlers are the application's own, so a filter on
the two loggers drops such a record before any handler receives it. Remove this when the SDK answers a
`ClientDisconnect` itself: `test_disconnect_log.py` fails then.
"""

import logging

from starlette.requests import ClientDisconnect

LOGGERS = ("mcp.server.streamable_http", "uvicorn.error")
"""The loggers of the 2025-11-25 transport, and of the HTTP server, which receives the error in 2026-07-28."""

logger = logging.getLogger(__name__)


def install_filter() -> None:
    """Filter those loggers. Calls after the first change nothing."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_is_no_disconnect)


def _is_no_disconnect(record: logging.LogRecord) -> bool:
    if record.exc_info is None or not isinstance(record.exc_info[1], ClientDisconnect):
        return True
    logger.debug("a client disconnected before it had sent its whole request")
    return False
