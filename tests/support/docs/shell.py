"""A shell in which the commands of a page are typed one after the other, and what a page may say otherwise than it."""

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

END = "-- that was it --"
PATIENCE = 60.0
"""Seconds for anything at all, on a machine that has other things to do."""

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
    """That of somebody who has just installed it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAINCHECK_", "XDG_"))}
    return {**kept, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


class Shell:
    """One bash, with all that it started."""

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
        """What a line prints, on stdout and stderr."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        # Commands must not read what is typed next.
        self._bash.stdin.write(f"eval {shlex.quote(line)} < /dev/null\necho '{END}'\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        while (said := self._bash.stdout.readline()) != f"{END}\n":
            assert said, f"the shell is gone, after {printed}"
            printed.append(said.rstrip())
        # What the shell says of a job that was killed is not on the page: it says it differently each time.
        return [one for one in printed if not KILLED.match(one)]


def wait_until_said(words: str, log: Path) -> None:
    """Wait until a server has written this."""
    deadline = time.monotonic() + PATIENCE
    while not (log.exists() and words in log.read_text()):
        assert time.monotonic() < deadline, f"{words!r} is not in {log}"
        time.sleep(0.05)


def compared(lines: Sequence[str]) -> tuple[list[str], set[str]]:
    """What of some output has to be on the page, and the lines of progress: how many there are is left to chance."""
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
