"""A client that disconnects in the middle of its request is one line at DEBUG, and no error."""

import asyncio
import logging
from urllib.parse import urlsplit

import pytest
from http_serving import served
from shop import Shop

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

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
        if record.levelno >= logging.WARNING or record.name == "raincheck.server.disconnect_log":
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
    async with served(Shop().mcp.streamable_http_app()) as url:
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
