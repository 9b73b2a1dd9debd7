"""Runs the suite on the fake server, quickly."""

import sys
from pathlib import Path

from raincheck.conformance import CHECKS, Check, CheckOutcome, ConformanceTarget, Report, Role, Timings, run_suite
from tests.support.conformance.fake_http import over_http
from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import SLOW, STEP, STEPS, SUPPORT
from tests.support.conformance.faults.base import Way

HERE = Path(__file__).parent
ROLES = {
    **{name: Role(name) for name in SUPPORT},
    "slow": Role("slow", takes=SLOW),
    "reports_progress": Role("reports_progress", takes=STEP * STEPS),
}
PACE = Timings(timeout=8, quiet_period=0.25, poll_interval=0.02)
ADA, BOB = {"Authorization": "Bearer ada"}, {"Authorization": "Bearer bob"}


def command_of(*arguments: str) -> ConformanceTarget:
    # It needs nothing that is installed, and starts faster without looking for it.
    return ConformanceTarget(command=[sys.executable, str(HERE / "fake_stdio.py"), *arguments])


async def try_suite(server: type[FakeServer], way: Way, checks: tuple[Check, ...] = CHECKS) -> Report:
    """What the suite finds of a kind of server, reached in a way."""
    if way == "stdio":
        name = "" if server is FakeServer else server.__name__
        return await run_suite(command_of(name), ROLES, checks=checks, timings=PACE)
    async with over_http(server()) as url:
        target = ConformanceTarget(url, headers=ADA, other_headers=BOB) if way == "owners" else ConformanceTarget(url)
        return await run_suite(target, ROLES, checks=checks, timings=PACE)


def complaints(report: Report) -> dict[str, str]:
    """The checks that did not pass, with the reasons."""
    bad = (CheckOutcome.FAILED, CheckOutcome.WARNING)
    return {finding.check.id: finding.detail for finding in report.results if finding.outcome in bad}
