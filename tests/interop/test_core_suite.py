"""A server passes the same checks of the official core suite with raincheck attached as without."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.node import node_or_skip
from tests.support.official_suite import Check, describe, run_suite, serving

SERVER = ROOT / "tests/support/interop/core_server.py"


@pytest.mark.parametrize(("revision", "min_successes"), [("2025-11-25", 80), ("2026-07-28", 150)])
def test_attaching_raincheck_changes_no_result_of_the_core_suite(
    revision: str, min_successes: int, tmp_path: Path
) -> None:
    node = node_or_skip()

    def run(*options: str) -> list[Check]:
        name = "".join(options) or "plain"
        with serving(SERVER, *options, log=tmp_path / f"{name}.log") as url:
            checks = run_suite(node, url, tmp_path / name, "--requirements", revision)
        # The newer revision includes the scenarios of the tasks extension, which have their own test.
        return [check for check in checks if not check.scenario.startswith("tasks-")]

    with ThreadPoolExecutor() as pool:
        plain, attached = pool.submit(run), pool.submit(run, "--with-tasks")

    assert [check.verdict for check in attached.result()] == [check.verdict for check in plain.result()]
    # Two servers that both do nothing would have equal results too.
    assert len([check for check in plain.result() if check.status == "SUCCESS"]) >= min_successes
    assert not describe(check for check in plain.result() if check.status not in ("SUCCESS", "INFO"))


def test_the_attached_server_declares_the_tasks_extension(tmp_path: Path) -> None:
    node = node_or_skip()
    with serving(SERVER, "--with-tasks", log=tmp_path / "server.log") as url:
        checks = run_suite(node, url, tmp_path / "results", "--scenario", "tasks-capability-negotiation")
    assert [check.status for check in checks if check.id == "tasks-extension-advertised"] == ["SUCCESS"]
