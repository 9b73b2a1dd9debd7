"""The official suite for the tasks extension passes against an example that uses only the public API."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.node import node_or_skip
from tests.support.official_suite import Check, describe, run_suite, serving

SERVER = ROOT / "examples/conformance.py"
SCENARIOS = (
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-status-notifications",
    "tasks-wire-fields",
)
SKIPS_ITSELF = ("tasks-status-notifications", "tasks-status-notifications", "SKIPPED")
"""The suite does not implement this scenario yet."""


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
def test_every_check_of_the_tasks_extension_succeeds(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    node = node_or_skip()
    match store:
        case "memory":
            address = "memory:"
        case "sqlite":
            address = str(tmp_path / "tasks.db")
        case _:
            address = request.getfixturevalue("database_url")

    def run(scenario: str) -> list[Check]:
        return run_suite(node, url, tmp_path / scenario, "--scenario", scenario)

    with (
        serving(SERVER, "--store", address, log=tmp_path / "server.log") as url,
        ThreadPoolExecutor(max_workers=4) as pool,
    ):
        checks = [check for checks in pool.map(run, SCENARIOS) for check in checks]
        unsuccessful = [check for check in checks if check.status != "SUCCESS" and check.verdict != SKIPS_ITSELF]
        assert not describe(unsuccessful)
    assert {check.scenario for check in checks} == set(SCENARIOS)
