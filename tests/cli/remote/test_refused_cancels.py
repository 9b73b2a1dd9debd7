"""`raincheck cancel` for processes that their workflow does not let be cancelled."""

import json
from pathlib import Path

import pytest

from tests.support.cli.terminal import COMMAND, OLDER, OLDER_COMMAND, at_terminal, held, run
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
    Path("older.py").write_text(OLDER, encoding="utf-8")


@COMMANDS
def test_a_process_that_goes_on_is_told_of_with_the_reason_and_stays_in_the_book(command: str) -> None:
    done = run("call", command, "letter", "--detach", "--json")
    assert done.returncode == 0, done.stderr
    task_id = json.loads(done.stdout)["task_id"]
    done = run("cancel", task_id[:20])
    assert (done.returncode, done.stdout) == (1, "")
    assert f"raincheck: task {task_id[:20]} can't be cancelled (not-cancellable): " in done.stderr
    assert done.stderr.endswith(". It goes on\n")
    assert task_id not in done.stderr
    done = run("cancel", task_id, "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["task_id"], told["status"], told["refused"]["reason"]) == (task_id, "working", "not-cancellable")
    assert told["refused"]["message"] == "workflow 'letter' has no state for that"
    assert [one["task_id"] for one in held()] == [task_id]


def test_ctrl_c_that_may_not_cancel_leaves_the_process_going_on() -> None:
    with at_terminal("call", COMMAND, "letter") as screen:
        screen.expect("written")
        screen.press("c").expect("[c]ancel it").type("c")
        screen.expect("its workflow does not allow that (not-cancellable)").expect("raincheck wait")
        assert screen.end() == 4
