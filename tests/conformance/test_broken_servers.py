"""A server that hangs, dies, answers garbage or is not there gives failed checks, or none: never a suite that hangs."""

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
from raincheck.conformance.messages import Message
from raincheck.conformance.outcome import ServerDisconnected
from raincheck.conformance.run import MAX_UNANSWERED
from raincheck.conformance.transport import stdio
from tests.support.conformance.runs import HERE, ROLES

pytestmark = pytest.mark.anyio

HASTY = Timings(timeout=0.5, quiet_period=0.1, poll_interval=0.02)


def broken(way: str) -> ConformanceTarget:
    return ConformanceTarget(command=[sys.executable, str(HERE / "broken_servers.py"), way])


async def find(target: ConformanceTarget, pace: Timings = HASTY) -> Report:
    # The only tool that the broken ones have.
    return await run_suite(target, {"quick": ROLES["quick"]}, timings=pace)


def details(report: Report) -> dict[str, str]:
    return {finding.check.id: finding.detail for finding in report.with_outcome(CheckOutcome.FAILED)}


async def test_a_server_that_ends_at_once_is_told_of_with_its_last_words() -> None:
    with pytest.raises(
        CommunicationError, match=r"the server ended with 1; the last it wrote to stderr: no such store"
    ):
        await find(broken("ends at once"), Timings(timeout=10))


class WritesTooLate(stdio.StdioTransport):
    """Learns from a write that the server has ended, before it has read so."""

    async def send(self, message: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ChildProcessError):  # asyncio was quicker
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - so that nobody reads
        if not self._process.stdin.transport.is_closing():  # nor is a pipe cut off that has been closed meanwhile
            self._process.stdin.transport.abort()
        await asyncio.sleep(0)
        await super().send(message)


async def test_what_it_said_last_is_told_by_whoever_writes_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "StdioTransport", WritesTooLate)
    with pytest.raises(
        ServerDisconnected, match=r"the server ended with 1; the last it wrote to stderr: no such store"
    ):
        await find(broken("ends at once"), Timings(timeout=10))


async def test_a_command_that_does_not_exist_is_told_of() -> None:
    with pytest.raises(CommunicationError, match="'no-such-program' could not be started"):
        await find(ConformanceTarget(command=["no-such-program"]))


async def test_a_server_that_says_nothing_is_told_of() -> None:
    with pytest.raises(CommunicationError, match=r"initialize was not answered within 0\.5 s"):
        await find(broken("silent"))


async def test_a_server_that_answers_garbage_is_told_of_with_the_garbage() -> None:
    with pytest.raises(CommunicationError, match=r"it sent what is no message: (Welcome!|<html>)"):
        await find(broken("garbage"), Timings(timeout=2))


async def test_a_server_that_dies_in_a_check_fails_it_and_the_next_has_a_new_one() -> None:
    report = await find(broken("dies"), Timings(timeout=10, quiet_period=0.1))
    assert len(report.results) == len(CHECKS)
    found = details(report)
    assert "the server ended with 3; the last it wrote to stderr: out of memory" in found["g1-unknown-tool-fails"]
    assert "nothing was answered" in found["g1-result-again"]


async def test_a_server_that_hangs_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "GRACE", 0.2)
    began = time.monotonic()
    report = await find(broken("hangs"))
    found = details(report)
    assert "tools/call was not answered within 0.5 s" in found["g1-unknown-tool-fails"]
    assert f"nothing was answered {MAX_UNANSWERED} times in a row" in found["g1-result-again"]
    # Far more than it costs, and far less than the suite would take if every check cost as much.
    assert time.monotonic() - began < len(CHECKS) * HASTY.timeout


async def test_answers_of_the_wrong_kind_fail_checks_and_break_none() -> None:
    for way in ("odd", "a list for a result"):
        report = await find(broken(way))
        assert len(report.results) == len(CHECKS)
        assert "g1-create-result" in details(report)
        assert not [one for one in details(report).values() if "could not be done" in one]


@contextlib.asynccontextmanager
async def answering(reply: bytes) -> AsyncGenerator[str]:
    """A server that answers every request on its port with the same bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def test_nobody_at_the_url_is_told_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(CommunicationError, match="the server could not be reached"):
        await find(ConformanceTarget(f"http://127.0.0.1:{port}/mcp"))


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nOops", "HTTP 500, Oops"),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "HTTP 401, nothing in it"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>", "HTTP 200, <html>"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\r\n\r\n", "ended without an answer"),
        (b"no HTTP at all\r\n\r\n", "the server could not be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", "what came in its place"),
    ],
)
async def test_a_url_where_something_else_answers_is_told_of(reply: bytes, told: str) -> None:
    async with answering(reply) as url:
        with pytest.raises(CommunicationError) as caught:
            await find(ConformanceTarget(url))
    assert told in str(caught.value)


async def test_a_run_that_is_broken_off_leaves_no_process_behind() -> None:
    run = asyncio.create_task(find(broken("hangs"), Timings(timeout=60)))
    await asyncio.sleep(0.5)  # somewhere in the middle: there is nothing to wait on from outside
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
