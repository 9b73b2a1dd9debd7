"""A shell that runs the commands of a page in order, and a comparison of its output with the page."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

END = "-- end of output --"
TIMEOUT = 60.0
"""Timeout in seconds of every wait, on a busy machine."""

ID = re.compile(r"\b[0-9a-f]{20,44}\b")
CLIPPED_ID = re.compile(r"\b[0-9a-f]{12}\b")
KILLED = re.compile(r"bash: (line \d+: +)?\d+ Killed ")
VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"), "<moment>"),
    (re.compile(r"\b\d+(\.\d)? (ms|s|min)\b"), "<a while>"),
    (re.compile(r"\S+:\d+:[0-9a-f]{8}"), "<worker>"),
    (re.compile(r"(?<!completed, )\b\d+ of "), "<some> of "),
    (re.compile(r" {2,}"), "  "),
)


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user who has just installed raincheck."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAINCHECK_", "XDG_"))}
    return {**inherited, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


class Shell:
    """A bash process, which is killed with everything that it started."""

    def __init__(self, home: Path) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--norc"],  # noqa: S607 - whatever bash there is
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
            env=environment(home),
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()

    def run(self, line: str) -> list[str]:
        """Run a line, and return what it prints on stdout and stderr."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        # Commands must not read what is typed next.
        self._bash.stdin.write(f"eval {shlex.quote(line)} < /dev/null\necho '{END}'\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        while (output := self._bash.stdout.readline()) != f"{END}\n":
            assert output, f"the shell exited after {printed}"
            printed.append(output.rstrip())
        # The shell reports killed jobs differently each time, so the page does not show these lines.
        return [line for line in printed if not KILLED.match(line)]


def wait_for_log(text: str, log: Path) -> None:
    """Wait until a log file contains the text."""
    deadline = time.monotonic() + TIMEOUT
    while not (log.exists() and text in log.read_text()):
        assert time.monotonic() < deadline, f"{text!r} is not in {log}"
        time.sleep(0.05)


def compared(lines: Sequence[str]) -> tuple[list[str], set[str]]:
    """Split output into the lines that the page must show and the progress lines, whose number varies."""
    shown: list[str] = []
    progress: set[str] = set()
    for line in lines:
        same = ID.sub("<id>", line.rstrip())
        for varying, name in VARIES:
            same = varying.sub(name, same)
        if ": working" in same:
            progress.add(same)
        else:
            shown.append(same.strip())
    return shown, progress
