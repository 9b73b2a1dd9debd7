"""Tests for the demo, with a real server and a real SIGKILL."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli.terminal import at_terminal

COMMAND = (str(Path(sys.executable).with_name("raincheck")), "demo")
WITHIN = 100


@pytest.mark.timeout(WITHIN + 20)
def test_all_callers_get_their_results_although_the_server_is_killed() -> None:
    played = subprocess.run([*COMMAND, "--json"], capture_output=True, timeout=WITHIN, check=True)
    reported = json.loads(played.stdout)
    bindings = {name: result["binding"] for name, result in reported["results"].items()}
    assert bindings == {"anna": "leather", "ben": "paper", "cleo": "paper"}
    assert {result["pages"] for result in reported["results"].values()} == {
        sum(10 * chapter for chapter in range(1, 13))
    }
    assert reported["right"] is True
    events = [entry["event"] for entry in reported["history"]]
    assert events[:2] == ["create", "claim"]
    assert events.count("interrupt") == 1
    assert events[-1] == "complete"
    # The cut may fall between the work of a chapter and its record, once for each caller.
    assert reported["printed_twice"] <= len(reported["results"])


@pytest.mark.timeout(WITHIN + 20)
def test_the_user_may_answer_the_question() -> None:
    terminal, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    played = subprocess.Popen(COMMAND, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    observed = ""
    has_answered = False
    while True:
        try:
            observed += os.read(terminal, 65_536).decode(errors="replace")
        except OSError:
            # So a terminal of Linux ends.
            break
        if "[Y/n]" in observed and not has_answered:
            has_answered = True
            os.write(terminal, b"n\n")
    os.close(terminal)
    assert played.wait(WITHIN) == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", observed)
    assert "No (your answer)" in plain
    assert '"binding": "paper"' in plain
    assert '"binding": "leather"' not in plain


@pytest.mark.timeout(WITHIN + 20)
def test_ctrl_c_ends_the_demo_and_restores_the_terminal() -> None:
    with at_terminal("demo") as screen:
        screen.expect("receives a task at once").press("c")
        assert screen.end() == 130
        assert "Traceback" not in screen.text
        assert "Error" not in screen.text
