"""Connection problems are logged as one line without a traceback."""

import asyncio
import errno
import logging
from urllib.parse import urlsplit

import pytest

from tests.support.http_server import running_app
from tests.support.server.example import ExampleServer

pytestmark = pytest.mark.anyio

HALF = (
    "POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nmcp-protocol-version: {version}\r\n"
    "accept: application/json, text/event-stream\r\ncontent-length: 1000\r\n\r\n{{"
)


class Noticing(logging.Handler):
    """Keeps what is logged about a disconnect, and every warning and error."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.has_one = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or record.name == "raincheck.server.sdk_compat":
            self.records.append(record)
            self.has_one.set()


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_client_that_leaves_a_half_sent_request_is_one_line_at_debug(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    noticing = Noticing()
    # uvicorn gives its loggers handlers of their own when it starts, and passes nothing on.
    loggers = [logging.getLogger(), logging.getLogger("uvicorn")]
    async with running_app(ExampleServer().mcp.streamable_http_app()) as url:
        for logger in loggers:
            logger.addHandler(noticing)
        host = urlsplit(url).netloc
        _, writer = await asyncio.open_connection(*host.split(":"))
        writer.write(HALF.format(host=host, version=version).encode())
        await writer.drain()
        writer.close()
        await noticing.has_one.wait()
    for logger in loggers:
        logger.removeHandler(noticing)
    (record,) = noticing.records
    assert (record.levelno, record.exc_info) == (logging.DEBUG, None)
    assert record.getMessage() == "a client disconnected before it had sent its whole request"


async def test_connections_that_can_not_be_accepted_are_one_warning_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ExampleServer()
    (accept_errors,) = [one for one in logging.getLogger("asyncio").filters if isinstance(one, logging.Filter)]
    vars(accept_errors)["_reported_at"] = None
    loop = asyncio.get_running_loop()
    for number in range(3):
        error = OSError(errno.EMFILE, "Too many open files")
        loop.default_exception_handler({"message": "socket.accept() out of system resource", "exception": error})
        loop.default_exception_handler({"message": f"another error {number}", "exception": error})
    records = [record for record in caplog.records if record.name == "raincheck.server.sdk_compat"]
    assert [(record.levelname, record.exc_info) for record in records] == [("WARNING", None)]
    assert "Too many open files" in records[0].getMessage()
    others = [record.getMessage() for record in caplog.records if record.name == "asyncio"]
    assert others == ["another error 0", "another error 1", "another error 2"]
