"""Commands that are told to end leave the terminal as it was."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.cli.terminal import COMMAND, at_terminal, held, run

pytestmark = pytest.mark.usefixtures("workshop")

SIGNALS = pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])


@SIGNALS
def test_a_call_is_left_as_if_somebody_detached(url: str, number: signal.Signals) -> None:
    with at_terminal("call", url, "hold") as screen:
        screen.expect("holding")
        os.kill(screen.process.pid, number)
        screen.expect("hold goes on as task")
        assert screen.end() == 4


@pytest.mark.parametrize(("tool", "shown"), [("hold", "holding"), ("confirm", "yes or no")])
def test_a_call_whose_terminal_is_gone_is_left_as_well(url: str, tool: str, shown: str) -> None:
    with at_terminal("call", url, tool) as screen:
        screen.expect(shown)
        assert screen.hang_up() == 4
    assert [slip["tool"] for slip in held()] == [tool]


@SIGNALS
def test_a_call_that_is_no_task_yet_ends_as_by_the_signal(url: str, number: signal.Signals) -> None:
    with at_terminal("call", url, "linger") as screen:
        screen.expect("linger").expect("0:00:01")
        os.kill(screen.process.pid, number)
        screen.expect("linger is given up. It was no task yet")
        assert screen.end() == 128 + number


@SIGNALS
def test_a_call_without_a_connection_ends_as_by_the_signal(number: signal.Signals) -> None:
    with at_terminal("call", "sleep 100", "hold") as screen:
        screen.expect("connecting")
        os.kill(screen.process.pid, number)
        screen.expect("given up, before anything was called")
        assert screen.end() == 128 + number


@SIGNALS
def test_tasks_are_not_watched_any_longer(url: str, number: signal.Signals) -> None:
    assert run("call", url, "hold", "--detach").returncode == 0
    with at_terminal("tasks", "watch", "--store", "tasks.db") as screen:
        screen.expect("running")
        os.kill(screen.process.pid, number)
        assert screen.end() == 128 + number
        assert "Traceback" not in screen.text
    Path("go").touch()


def test_whoever_does_not_want_to_be_hung_up_is_not() -> None:
    Path("server.sh").write_text(f"trap '' HUP; exec {COMMAND}")
    with at_terminal("call", "sh server.sh", "hold", ignored=signal.SIGHUP) as screen:
        screen.expect("holding")
        os.kill(screen.process.pid, signal.SIGHUP)
        Path("go").touch()
        screen.expect("let go")
        assert screen.end() == 0
