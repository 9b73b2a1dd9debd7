"""Our own server passes the whole suite, over every transport: nothing fails, nothing warns, nothing is excluded."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from raincheck.conformance import CheckOutcome, ConformanceTarget, Report, run_suite
from tests.support import ROOT
from tests.support.conformance.runs import ADA, BOB, complaints

EXAMPLE = ROOT / "examples/conformance.py"
IN_MEMORY = "memory:"

ALWAYS = {
    # It declares tasks for calls, and cancelling.
    "g1-undeclared-ignored",
    "g1-undeclared-cancel-32601",
    # It keeps every task for a day at least: too long to wait for its end.
    "g1-ttl-over",
}
LISTS = {"g1-undeclared-list-32601"}
"""Where callers can be told apart, tasks can be listed."""

OF_STRANGERS = {"g1-task-id-unguessable", "g1-list-private"}
OF_HTTP = {"g1-get-no-stream", "g1-result-disconnected", "g1-result-others-leave"}


@asynccontextmanager
async def serving(store: str) -> AsyncGenerator[str]:
    """The URL of the example, while a process serves it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *command(store), "--port", str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while True:
                assert process.returncode is None, "the server ended before it listened"
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)  # another process: there is nothing else to wait on
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()


def command(store: str) -> list[str]:
    return [sys.executable, str(EXAMPLE), "--store", store]


async def find_all() -> dict[str, Report]:
    """What is found over each transport: all at once, since most of it is waiting."""
    async with serving(IN_MEMORY) as url:
        targets = {
            "stdio": ConformanceTarget(command=[*command(IN_MEMORY), "--transport", "stdio"]),
            "http": ConformanceTarget(url),
            "owners": ConformanceTarget(url, headers=ADA, other_headers=BOB),
        }
        reports = await asyncio.gather(*(run_suite(target) for target in targets.values()))
    return dict(zip(targets, reports, strict=True))


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return asyncio.run(find_all())


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["stdio", "http", "owners"])
def test_our_server_passes_the_suite(way: str, reports: dict[str, Report]) -> None:
    report = reports[way]
    assert complaints(report) == {}
    of_owners = {finding.check.id for finding in report.results if finding.check.id.startswith("g1-owner-")}
    of_lists = {finding.check.id for finding in report.results if finding.check.id.startswith("g1-list-")}
    left_out = {
        "stdio": LISTS | OF_STRANGERS | OF_HTTP | of_owners,
        "http": of_lists | of_owners,
        "owners": LISTS | OF_STRANGERS,
    }
    skipped = {finding.check.id: finding.detail for finding in report.with_outcome(CheckOutcome.SKIPPED)}
    assert skipped.keys() == ALWAYS | left_out[way], skipped


@pytest.mark.timeout(240)
def test_our_server_passes_the_suite_on_postgresql(database_url: str) -> None:
    async def find() -> Report:
        async with serving(database_url) as url:
            return await run_suite(ConformanceTarget(url, headers=ADA, other_headers=BOB))

    report = asyncio.run(find())
    assert complaints(report) == {}
    assert {finding.check.id for finding in report.with_outcome(CheckOutcome.SKIPPED)} == ALWAYS | LISTS | OF_STRANGERS
