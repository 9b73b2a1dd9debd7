"""The suite can fail: each fault that is planted in the right server is found, by the check that is meant for it."""

import asyncio
import os

import pytest

from raincheck.conformance import CHECKS, Check
from raincheck.conformance.checks import TOPICS
from tests.support.conformance.faults.all import FAULTS, GROUPS
from tests.support.conformance.faults.base import Fault
from tests.support.conformance.runs import complaints, try_suite

pytestmark = pytest.mark.anyio

AT_ONCE = 12
"""So many servers are checked at a time: most of it is waiting."""

STEADY = "g1-steady"
"""Tells of what went wrong once and not again, which a machine with much to do can bring about."""

PATIENT = {
    "Times and retention": {"g1-ttl-kept", "g1-ttl-over"},
    "Getting": {"g1-get-no-stream"},
    "Results": {
        "g1-result-blocks",
        "g1-result-two-waiters",
        "g1-result-given-up",
        "g1-result-disconnected",
        "g1-result-others-leave",
    },
    "Cancelling": {"g1-cancel-stays", "g1-cancel-input-required"},
    "Input": {check.id for check in TOPICS["Input"]},
    "Status notifications": {check.id for check in TOPICS["Status notifications"]},
    "Progress": {check.id for check in TOPICS["Progress"]},
    "Isolation": {"g1-owner-silence"},
}
"""The checks that wait, by their topics."""


def checks_for(fault: Fault) -> tuple[Check, ...]:
    """All checks, without those that take long and are about something else. At night none is left out."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "nightly":
        return CHECKS
    topic = next(name for name, checks in TOPICS.items() if fault.check in [check.id for check in checks])
    if fault.way != "stdio":  # where each request takes long
        return TOPICS[topic]
    others = {check for name, checks in PATIENT.items() if name != topic for check in checks}
    return tuple(check for check in CHECKS if check.id not in others)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", GROUPS)
async def test_each_fault_is_found_by_the_check_that_is_meant_to_find_it(group: str) -> None:
    places = asyncio.Semaphore(AT_ONCE)
    wrong: list[str] = []

    async def look_for(fault: Fault) -> None:
        async with places:
            found = complaints(await try_suite(fault.server, fault.way, checks_for(fault)))
        others = found.keys() - {fault.check, STEADY} - fault.may
        if fault.check not in found or (others and "*" not in fault.may):
            wrong.append(f"{fault.name} is for {fault.check}, and these complained: {found}")

    async with asyncio.TaskGroup() as servers:
        for fault in GROUPS[group]:
            servers.create_task(look_for(fault))
    assert not wrong, "\n".join(wrong)


def test_every_check_has_a_fault_that_it_finds() -> None:
    assert {check.id for check in CHECKS} == {fault.check for fault in FAULTS.values()}


def test_no_two_checks_and_no_two_faults_have_the_same_name() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert len(FAULTS) == sum(map(len, GROUPS.values()))
