"""Runs the suite on the fake server, quickly."""

import sys
from pathlib import Path

from fake_http import over_http
from fake_server import FakeServer
from fake_task import SLOW, STEP, STEPS, SUPPORT
from planting import Way

from raincheck.conformance import CHECKS, Check, Outcome, Pace, Report, Role, Target, run_suite

HERE = Path(__file__).parent
ROLES = {
    **{name: Role(name) for name in SUPPORT},
    "slow": Role("slow", takes=SLOW),
    "reports_progress": Role("reports_progress", takes=STEP * STEPS),
}
PACE = Pace(timeout=8, quiet=0.25, poll=0.02)
ADA, BOB = {"Authorization": "Bearer ada"}, {"Authorization": "Bearer bob"}


def command_of(*arguments: str) -> Target:
    # It needs nothing that is installed, and starts faster without looking for it.
    return Target(command=[sys.executable, str(HERE / "fake_stdio.py"), *arguments])


async def try_suite(server: type[FakeServer], way: Way, checks: tuple[Check, ...] = CHECKS) -> Report:
    """What the suite finds of a kind of server, reached in a way."""
    if way == "stdio":
        name = "" if server is FakeServer else server.__name__
        return await run_suite(command_of(name), ROLES, checks=checks, pace=PACE)
    async with over_http(server()) as url:
        target = Target(url, headers=ADA, other_headers=BOB) if way == "owners" else Target(url)
        return await run_suite(target, ROLES, checks=checks, pace=PACE)


def complaints(report: Report) -> dict[str, str]:
    """The checks that did not pass, with the reasons."""
    bad = (Outcome.FAILED, Outcome.WARNING)
    return {finding.check.id: finding.detail for finding in report.findings if finding.outcome in bad}
