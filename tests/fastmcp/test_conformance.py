"""A FastMCP server passes both conformance suites, the official one of 2026 and ours of 2025."""

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import ROOT
from tests.support.node import node_or_skip
from tests.support.official_suite import Check, describe, run_suite, serving

SERVER = ROOT / "tests/support/fastmcp/conformance_server.py"
SCENARIOS = (
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-wire-fields",
)


def test_every_check_of_the_2026_suite_succeeds(tmp_path: Path) -> None:
    node = node_or_skip()

    def run(scenario: str) -> list[Check]:
        return run_suite(node, url, tmp_path / scenario, "--scenario", scenario)

    with serving(SERVER, log=tmp_path / "server.log") as url, ThreadPoolExecutor(max_workers=4) as pool:
        checks = [check for checks in pool.map(run, SCENARIOS) for check in checks]
    assert not describe(check for check in checks if check.status != "SUCCESS")
    assert {check.scenario for check in checks} == set(SCENARIOS)


def test_no_check_of_the_2025_suite_fails(tmp_path: Path) -> None:
    whose = ("--header", "Authorization: Bearer ONE", "--other-header", "Authorization: Bearer TWO")
    with serving(SERVER, log=tmp_path / "server.log") as url:
        command = [Path(sys.executable).with_name("raincheck"), "conformance", "2025-11-25", "--json", *whose, url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = Counter(check["outcome"] for check in json.loads(done.stdout)["checks"])
    assert outcomes["passed"] > 100, outcomes
