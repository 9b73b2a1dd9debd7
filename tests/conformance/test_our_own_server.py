"""A raincheck server passes the whole suite over every transport, without failures, warnings or exclusions."""

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
    # It declares tasks for tools/call, and tasks/cancel.
    "v2025-undeclared-ignored",
    "v2025-undeclared-cancel-32601",
    # It retains every task for at least a day: too long to wait for.
    "v2025-ttl-expired",
}
LISTS = {"v2025-undeclared-list-32601"}
"""Not skipped for anonymous callers, who can't list tasks."""

ANONYMOUS = {"v2025-task-id-unguessable", "v2025-list-private"}
HTTP = {"v2025-get-no-stream", "v2025-result-disconnected", "v2025-result-other-disconnects"}


@asynccontextmanager
async def serving(store: str) -> AsyncGenerator[str]:
    """Serve the example in a process, and yield its URL."""
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
                await asyncio.sleep(0.05)  # another process, which sends no event
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()


def command(store: str) -> list[str]:
    return [sys.executable, str(EXAMPLE), "--store", store]


async def run_all() -> dict[str, Report]:
    """Run the suite over all transports concurrently, since most of the time is waiting."""
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
    return asyncio.run(run_all())


@pytest.mark.parametrize("mode", ["stdio", "http", "owners"])
def test_our_server_passes_the_suite(mode: str, reports: dict[str, Report]) -> None:
    report = reports[mode]
    assert complaints(report) == {}
    owner_checks = {result.check.id for result in report.results if result.check.id.startswith("v2025-owner-")}
    list_checks = {result.check.id for result in report.results if result.check.id.startswith("v2025-list-")}
    skipped_checks = {
        "stdio": LISTS | ANONYMOUS | HTTP | owner_checks,
        "http": list_checks | owner_checks,
        "owners": LISTS | ANONYMOUS,
    }
    skipped = {result.check.id: result.detail for result in report.with_outcome(CheckOutcome.SKIPPED)}
    assert skipped.keys() == ALWAYS | skipped_checks[mode], skipped


def test_our_server_passes_the_suite_on_postgresql(database_url: str) -> None:
    async def run() -> Report:
        async with serving(database_url) as url:
            return await run_suite(ConformanceTarget(url, headers=ADA, other_headers=BOB))

    report = asyncio.run(run())
    assert complaints(report) == {}
    assert {result.check.id for result in report.with_outcome(CheckOutcome.SKIPPED)} == ALWAYS | LISTS | ANONYMOUS
