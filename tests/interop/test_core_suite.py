"""What the core protocol asks of a server, it does with raincheck attached just as it did without."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.node import node_or_skip
from tests.support.official_suite import Check, describe, run_suite, serving

SERVER = ROOT / "tests/support/interop/core_server.py"


@pytest.mark.parametrize(("revision", "fewest"), [("2025-11-25", 80), ("2026-07-28", 150)])
def test_attaching_raincheck_changes_nothing_that_the_core_suite_sees(
    revision: str, fewest: int, tmp_path: Path
) -> None:
    node = node_or_skip()

    def run(*options: str) -> list[Check]:
        name = "".join(options) or "plain"
        with serving(SERVER, *options, log=tmp_path / f"{name}.log") as url:
            checks = run_suite(node, url, tmp_path / name, "--requirements", revision)
        # The newer revision's set includes the scenarios of our extension, which have a test of their own.
        return [check for check in checks if not check.scenario.startswith("tasks-")]

    with ThreadPoolExecutor() as pool:
        plain, attached = pool.submit(run), pool.submit(run, "--with-tasks")

    assert [check.verdict for check in attached.result()] == [check.verdict for check in plain.result()]
    # Two servers that both do nothing would be alike, too.
    assert len([check for check in plain.result() if check.status == "SUCCESS"]) >= fewest
    assert not describe(check for check in plain.result() if check.status not in ("SUCCESS", "INFO"))


def test_the_server_that_is_compared_does_have_tasks_attached(tmp_path: Path) -> None:
    node = node_or_skip()
    with serving(SERVER, "--with-tasks", log=tmp_path / "server.log") as url:
        checks = run_suite(node, url, tmp_path / "results", "--scenario", "tasks-capability-negotiation")
    assert [check.status for check in checks if check.id == "tasks-extension-advertised"] == ["SUCCESS"]
