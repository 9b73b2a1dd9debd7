"""The suite reports servers that hang, die, answer garbage or do not exist, and never hangs itself."""

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator

import pytest

from raincheck.conformance import (
    CHECKS,
    CheckOutcome,
    CommunicationError,
    ConformanceTarget,
    Report,
    Timings,
    run_suite,
    transport,
)
from raincheck.conformance.connection import Message, ServerDisconnected
from raincheck.conformance.run import MAX_UNANSWERED
from raincheck.conformance.transport import stdio
from tests.support.conformance.runs import HERE, ROLES

pytestmark = pytest.mark.anyio

HASTY = Timings(timeout=0.5, quiet_period=0.1, poll_interval=0.02)


def broken(mode: str) -> ConformanceTarget:
    return ConformanceTarget(command=[sys.executable, str(HERE / "broken_servers.py"), mode])


async def run(target: ConformanceTarget, timings: Timings = HASTY) -> Report:
    # The broken servers have only this tool.
    return await run_suite(target, {"quick": ROLES["quick"]}, timings=timings)


def details(report: Report) -> dict[str, str]:
    return {result.check.id: result.detail for result in report.with_outcome(CheckOutcome.FAILED)}


async def test_a_server_that_exits_at_once_is_reported_with_its_last_lines_on_stderr() -> None:
    with pytest.raises(
        CommunicationError, match=r"the server exited with status 1; its last lines on stderr: no such store"
    ):
        await run(broken("ends at once"), Timings(timeout=10))


class LateWriteTransport(stdio.StdioTransport):
    """Notices by a write that the server has exited, before the reader does."""

    async def send(self, message: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ChildProcessError):  # asyncio was quicker
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - the reader must not run
        if not self._process.stdin.transport.is_closing():  # it may have been closed meanwhile
            self._process.stdin.transport.abort()
        await asyncio.sleep(0)
        await super().send(message)


async def test_a_write_after_the_server_exited_reports_its_last_lines_on_stderr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "StdioTransport", LateWriteTransport)
    with pytest.raises(
        ServerDisconnected, match=r"the server exited with status 1; its last lines on stderr: no such store"
    ):
        await run(broken("ends at once"), Timings(timeout=10))


async def test_a_command_that_does_not_exist_is_reported() -> None:
    with pytest.raises(CommunicationError, match="'no-such-program' could not be started"):
        await run(ConformanceTarget(command=["no-such-program"]))


async def test_a_silent_server_is_reported() -> None:
    with pytest.raises(CommunicationError, match=r"initialize was not answered within 0\.5 s"):
        await run(broken("silent"))


async def test_a_server_that_answers_garbage_is_reported_with_the_garbage() -> None:
    with pytest.raises(CommunicationError, match=r"it sent text that is not a message: (Welcome!|<html>)"):
        await run(broken("garbage"), Timings(timeout=2))


async def test_a_server_that_dies_in_a_check_fails_it_and_is_restarted_for_the_next() -> None:
    report = await run(broken("dies"), Timings(timeout=10, quiet_period=0.1))
    assert len(report.results) == len(CHECKS)
    found = details(report)
    assert (
        "the server exited with status 3; its last lines on stderr: out of memory" in found["v2025-unknown-tool-fails"]
    )
    assert "the server did not answer" in found["v2025-result-again"]


async def test_a_server_that_hangs_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "GRACE", 0.2)
    began = time.monotonic()
    report = await run(broken("hangs"))
    found = details(report)
    assert "tools/call was not answered within 0.5 s" in found["v2025-unknown-tool-fails"]
    assert f"the server did not answer {MAX_UNANSWERED} times in a row" in found["v2025-result-again"]
    # A generous limit, but far less than a timeout in every check would take.
    assert time.monotonic() - began < len(CHECKS) * HASTY.timeout


async def test_answers_of_the_wrong_kind_fail_checks_and_break_none() -> None:
    for mode in ("odd", "a list for a result"):
        report = await run(broken(mode))
        assert len(report.results) == len(CHECKS)
        assert "v2025-create-result" in details(report)
        assert not [detail for detail in details(report).values() if "the check itself failed" in detail]


@contextlib.asynccontextmanager
async def answering(reply: bytes) -> AsyncGenerator[str]:
    """Serve a port that answers every request with the same bytes, and yield its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def test_a_url_without_a_server_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(CommunicationError, match="the server could not be reached"):
        await run(ConformanceTarget(f"http://127.0.0.1:{port}/mcp"))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nOops", "HTTP 500, Oops"),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "HTTP 401, empty body"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>", "HTTP 200, <html>"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\r\n\r\n", "ended without a response"),
        (b"no HTTP at all\r\n\r\n", "the server could not be reached"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
            "the server sent {} instead",
        ),
    ],
)
async def test_a_url_of_another_kind_of_server_is_reported(reply: bytes, expected: str) -> None:
    async with answering(reply) as url:
        with pytest.raises(CommunicationError) as caught:
            await run(ConformanceTarget(url))
    assert expected in str(caught.value)


async def test_a_cancelled_run_leaves_no_process_behind() -> None:
    running = asyncio.create_task(run(broken("hangs"), Timings(timeout=60)))
    await asyncio.sleep(0.5)  # somewhere in the middle of the run, which no event marks
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
