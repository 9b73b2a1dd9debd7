"""Each fault that is planted in a conforming server is found by the check that covers it."""

import asyncio
import os

import pytest

from raincheck.conformance import CHECKS, Check
from raincheck.conformance.checks import TOPICS
from tests.support.conformance.faults.all import FAULTS, GROUPS
from tests.support.conformance.faults.base import Fault
from tests.support.conformance.runs import complaints, try_suite

pytestmark = pytest.mark.anyio

MAX_CONCURRENT = 12
"""Servers to check at a time. Most of the time is waiting."""

STEADY = "v2025-steady"
"""Reports checks that passed only on retry, which also happens on a busy machine."""

SLOW_CHECKS = {
    "Times and retention": {"v2025-ttl-honored", "v2025-ttl-expired"},
    "Getting": {"v2025-get-no-stream"},
    "Results": {
        "v2025-result-blocks",
        "v2025-result-two-waiters",
        "v2025-result-abandoned",
        "v2025-result-disconnected",
        "v2025-result-other-disconnects",
    },
    "Cancelling": {"v2025-cancel-stays", "v2025-cancel-input-required"},
    "Input": {check.id for check in TOPICS["Input"]},
    "Status notifications": {check.id for check in TOPICS["Status notifications"]},
    "Progress": {check.id for check in TOPICS["Progress"]},
    "Isolation": {"v2025-owner-silence"},
}
"""The checks that wait, by topic."""


def checks_for(fault: Fault) -> tuple[Check, ...]:
    """Return all checks except the slow ones of other topics. Nightly runs leave out none."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "nightly":
        return CHECKS
    topic = next(name for name, checks in TOPICS.items() if fault.check in [check.id for check in checks])
    if fault.mode != "stdio":  # HTTP requests are slower
        return TOPICS[topic]
    others = {check for name, checks in SLOW_CHECKS.items() if name != topic for check in checks}
    return tuple(check for check in CHECKS if check.id not in others)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", GROUPS)
async def test_each_planted_fault_is_found_by_its_check(group: str) -> None:
    slots = asyncio.Semaphore(MAX_CONCURRENT)
    wrong: list[str] = []

    async def try_fault(fault: Fault) -> None:
        async with slots:
            complaining = complaints(await try_suite(fault.server, fault.mode, checks_for(fault)))
        others = complaining.keys() - {fault.check, STEADY} - fault.may_fail
        if fault.check not in complaining or (others and "*" not in fault.may_fail):
            wrong.append(f"{fault.name} should fail {fault.check}, but these checks complained: {complaining}")

    async with asyncio.TaskGroup() as servers:
        for fault in GROUPS[group]:
            servers.create_task(try_fault(fault))
    assert not wrong, "\n".join(wrong)


def test_every_check_has_a_planted_fault() -> None:
    assert {check.id for check in CHECKS} == {fault.check for fault in FAULTS.values()}


def test_check_ids_and_fault_names_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert len(FAULTS) == sum(map(len, GROUPS.values()))
