"""Tests for the output of `raincheck tools` as a process, on a terminal and into a pipe."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from tests.support.cli.report_server import SERVER, record_durations, write

pytestmark = pytest.mark.usefixtures("folder")

MAIN = "from raincheck.cli import main; main()"

NOISY = f"""
import logging, os, sys
print("printed")
os.system("echo by a shell")
logging.basicConfig(stream=sys.stdout)
{SERVER}
logging.warning("logged")
"""


def test_output_of_the_module_does_not_corrupt_the_json() -> None:
    write(NOISY)
    command = [sys.executable, "-c", MAIN, "tools", "reports.py", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert len(json.loads(done.stdout)) == 3
    for word in ("printed", "by a shell", "logged"):
        assert word in done.stderr


def test_there_are_no_colours_where_there_is_no_terminal() -> None:
    write()
    command = [sys.executable, "-c", MAIN, "tools", "reports.py"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0
    assert b"crunch" in done.stdout
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""


@pytest.mark.parametrize("columns", [80, 160])
def test_a_terminal_gets_colours_and_lines_that_fit(columns: int) -> None:
    write(SERVER.replace("def look_up", "def look_up_whatever_there_is_to_be_looked_up_under_a_very_long_name"))
    record_durations(crunch=[600.0] * 100)
    main_end, other_end = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "NO_COLOR": "", "CI": ""}
    command = [sys.executable, "-c", MAIN, "tools", "reports.py", "--store", "tasks.db"]
    with subprocess.Popen(command, stdout=other_end, stderr=other_end, env=env) as process:
        os.close(other_end)
        printed = b""
        while piece := read_terminal(main_end):
            printed += piece
    os.close(main_end)
    assert process.returncode == 0
    assert b"\x1b[36mgets a task" in printed
    shown = re.sub(r"\x1b\[[\d;]*m", "", printed.decode()).splitlines()
    # All but the last, which has a path that can't be broken.
    assert max(len(line) for line in shown[:-1]) <= columns
    assert "crunch" in shown[1] + shown[2]


def read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end is closed
        return b""
