"""Tests for `raincheck cancel` of instances whose workflow does not allow it."""

import json
from pathlib import Path

import pytest

from tests.support.cli.terminal import COMMAND, OLDER_COMMAND, OLDER_SERVER, at_terminal, list_saved_calls, run
from tests.support.cli.workflow_server import write_flows

FLOWS = """
raincheck: 1
workflows:
  letter:
    states:
      written: {transitions: {send: {to: sent}}}
      sent: {kind: success}
"""

SERVER = """
import sys

from raincheck.cli import main

sys.argv[1:] = ["serve", "flows.yaml", "--store", "tasks.db"]
main()
"""

COMMANDS = pytest.mark.parametrize("command", [COMMAND, OLDER_COMMAND], ids=["2026-07-28", "2025-11-25"])


@pytest.fixture(autouse=True)
def letters(folder: Path) -> None:
    del folder
    write_flows(FLOWS)
    Path("server.py").write_text(SERVER, encoding="utf-8")
    Path("older.py").write_text(OLDER_SERVER, encoding="utf-8")


@COMMANDS
def test_a_refused_cancel_is_reported_with_the_reason_and_the_call_stays_saved(command: str) -> None:
    done = run("call", command, "letter", "--detach", "--json")
    assert done.returncode == 0, done.stderr
    task_id = json.loads(done.stdout)["task_id"]
    done = run("cancel", task_id[:20])
    assert (done.returncode, done.stdout) == (1, "")
    assert f"raincheck: task {task_id[:20]} can't be cancelled (not-cancellable): " in done.stderr
    assert done.stderr.endswith(". It continues\n")
    assert task_id not in done.stderr
    done = run("cancel", task_id, "--json")
    assert done.returncode == 1
    reported = json.loads(done.stdout)
    assert (reported["task_id"], reported["status"], reported["refused"]["reason"]) == (
        task_id,
        "working",
        "not-cancellable",
    )
    assert reported["refused"]["message"] == "workflow 'letter' has no state of kind cancel"
    assert [one["task_id"] for one in list_saved_calls()] == [task_id]


def test_a_refused_cancel_after_ctrl_c_leaves_the_instance_running() -> None:
    with at_terminal("call", COMMAND, "letter") as screen:
        screen.expect("written")
        screen.press("c").expect("[c]ancel the task").type("c")
        screen.expect("its workflow does not allow it to be cancelled (not-cancellable)").expect("raincheck wait")
        assert screen.end() == 4
