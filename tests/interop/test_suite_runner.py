"""The runner of the official suite reports missing programs, incomplete scenarios and failures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, node
from tests.support.node import Node, NodeMissing, node_or_skip, prepare
from tests.support.official_suite import Check, read_checks, run_suite, serving

HERE = Path(__file__).parent


def test_a_server_without_tasks_fails_the_tasks_suite(tmp_path: Path) -> None:
    found = node_or_skip()
    with serving(ROOT / "tests/support/interop/core_server.py", log=tmp_path / "server.log") as url:
        checks = run_suite(found, url, tmp_path / "results", "--scenario", "tasks-wire-fields")
    assert {check.status for check in checks} >= {"SUCCESS", "FAILURE"}


def test_a_scenario_without_results_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "server-tools-list-2026-01-02T03-04-05-678Z").mkdir()
    whole = tmp_path / "server-ping-2026-01-02T03-04-05-678Z"
    whole.mkdir()
    (whole / "checks.json").write_text(json.dumps([{"id": "ping", "status": "SUCCESS"}]))
    assert list(read_checks(tmp_path)) == [
        Check("ping", "ping", "SUCCESS"),
        Check("tools-list", "tools-list", "FAILURE", "the scenario ended without results"),
    ]


def test_the_error_of_a_server_that_does_not_start_has_its_output(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no such store')")
    with (
        pytest.raises(AssertionError, match="exited with status 1 before it listened") as caught,
        serving(script, log=tmp_path / "server.log"),
    ):
        pass
    assert "no such store" in caught.value.__notes__[0]


@pytest.mark.parametrize(("where", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_node_fails_in_continuous_integration_and_skips_elsewhere(
    where: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing() -> Path:
        raise NodeMissing("there is no Node here")

    monkeypatch.setattr(node, "find_program", find_nothing)
    monkeypatch.setattr(
        node, "prepare_once", node.prepare_once.__wrapped__
    )  # without the cached result of earlier tests
    monkeypatch.setenv("CI", where)
    with pytest.raises(outcome, match="there is no Node here"):
        node_or_skip()


def test_a_failed_npm_leaves_no_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_npm(_: Path) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('no network')"]

    monkeypatch.setattr(node, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(node, "find_npm", broken_npm)
    monkeypatch.setattr(node, "find_program", Path)
    for _ in range(2):
        with pytest.raises(NodeMissing, match="no network"):
            prepare()


def test_concurrent_processes_install_the_packages_once(tmp_path: Path) -> None:
    # Two concurrent processes, each with a slow npm that records that it ran.
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.support import node
npm = "import pathlib, time; time.sleep(0.3); pathlib.Path('../../ran').open('a').write('x')"
node.CACHE = Path('cache').absolute()
node.find_npm = lambda _: [sys.executable, "-c", npm]
node.find_program = Path
print(node.prepare().modules)
"""
    both = [
        subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = {process.communicate()[0] for process in both}
    assert len(folders) == 1
    assert (tmp_path / "ran").read_text() == "x"


def test_a_script_is_copied_next_to_the_packages(tmp_path: Path) -> None:
    modules = tmp_path / "installed/node_modules"
    modules.mkdir(parents=True)
    folder = tmp_path / "work"
    folder.mkdir()
    script = Node(Path("node"), modules).copy_script(HERE / "drive_v2026.mjs", folder)
    assert script.parent == folder
    assert (folder / "node_modules").resolve() == modules.resolve()
