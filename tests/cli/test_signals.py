"""Tests that commands which are ended by a signal restore the terminal."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.cli.terminal import COMMAND, at_terminal, list_saved_calls, run

pytestmark = pytest.mark.usefixtures("workshop")

SIGNALS = pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])


@SIGNALS
def test_a_signal_detaches_from_a_task(url: str, number: signal.Signals) -> None:
    with at_terminal("call", url, "hold") as screen:
        screen.expect("holding")
        os.kill(screen.process.pid, number)
        screen.expect("hold keeps running as task")
        assert screen.end() == 4


@pytest.mark.parametrize(("tool", "shown"), [("hold", "holding"), ("confirm", "yes or no")])
def test_a_hangup_detaches_from_a_task(url: str, tool: str, shown: str) -> None:
    with at_terminal("call", url, tool) as screen:
        screen.expect(shown)
        assert screen.hang_up() == 4
    assert [task_ref["tool"] for task_ref in list_saved_calls()] == [tool]


@SIGNALS
def test_a_signal_ends_a_call_that_is_not_a_task_yet(url: str, number: signal.Signals) -> None:
    with at_terminal("call", url, "linger") as screen:
        screen.expect("linger").expect("0:00:01")
        os.kill(screen.process.pid, number)
        screen.expect("linger was interrupted. It was not a task yet")
        assert screen.end() == 128 + number


@SIGNALS
def test_a_signal_ends_a_call_while_connecting(number: signal.Signals) -> None:
    with at_terminal("call", "sleep 100", "hold") as screen:
        screen.expect("connecting")
        os.kill(screen.process.pid, number)
        screen.expect("interrupted before the tool was called")
        assert screen.end() == 128 + number


@SIGNALS
def test_a_signal_ends_tasks_watch(url: str, number: signal.Signals) -> None:
    assert run("call", url, "hold", "--detach").returncode == 0
    with at_terminal("tasks", "watch", "--store", "tasks.db") as screen:
        screen.expect("running")
        os.kill(screen.process.pid, number)
        assert screen.end() == 128 + number
        assert "Traceback" not in screen.text
    Path("go").touch()


def test_nohup_is_respected() -> None:
    Path("server.sh").write_text(f"trap '' HUP; exec {COMMAND}")
    with at_terminal("call", "sh server.sh", "hold", ignored=signal.SIGHUP) as screen:
        screen.expect("holding")
        os.kill(screen.process.pid, signal.SIGHUP)
        Path("go").touch()
        screen.expect("let go")
        assert screen.end() == 0
