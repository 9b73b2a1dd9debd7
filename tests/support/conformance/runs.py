"""Runs the suite on the fake server, with short times."""

import sys
from pathlib import Path

from raincheck.conformance import CHECKS, Check, CheckOutcome, ConformanceTarget, Report, Role, Timings, run_suite
from tests.support.conformance.fake_http import over_http
from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import SLOW, STEP, STEPS, SUPPORT
from tests.support.conformance.faults.base import Mode

HERE = Path(__file__).parent
ROLES = {
    **{name: Role(name) for name in SUPPORT},
    "slow": Role("slow", takes=SLOW),
    "reports_progress": Role("reports_progress", takes=STEP * STEPS),
}
TIMINGS = Timings(timeout=8, quiet_period=0.25, poll_interval=0.02)
ADA, BOB = {"Authorization": "Bearer ada"}, {"Authorization": "Bearer bob"}


def command_of(*arguments: str) -> ConformanceTarget:
    # It needs nothing that is installed, and starts faster without looking for it.
    return ConformanceTarget(command=[sys.executable, str(HERE / "fake_stdio.py"), *arguments])


async def try_suite(server: type[FakeServer], mode: Mode, checks: tuple[Check, ...] = CHECKS) -> Report:
    """Run the suite on a server class over one transport."""
    if mode == "stdio":
        name = "" if server is FakeServer else server.__name__
        return await run_suite(command_of(name), ROLES, checks=checks, timings=TIMINGS)
    async with over_http(server()) as url:
        target = ConformanceTarget(url, headers=ADA, other_headers=BOB) if mode == "owners" else ConformanceTarget(url)
        return await run_suite(target, ROLES, checks=checks, timings=TIMINGS)


def complaints(report: Report) -> dict[str, str]:
    """Return the checks that failed or warned, with their details."""
    bad = (CheckOutcome.FAILED, CheckOutcome.WARNING)
    return {result.check.id: result.detail for result in report.results if result.outcome in bad}
