"""Tests that the output on docs/howto/serve-workflows.md is what its commands print in a real shell."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.cli.terminal import PATIENCE, PROGRAM, environment

PAGE = (ROOT / "docs/howto/serve-workflows.md").read_text(encoding="utf-8")
FLOWS = re.findall(r"`([a-z]+\.yaml)`:\n\n```yaml\n(.*?)```", PAGE, re.DOTALL)
BLOCKS = re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)

SHOWN_ID = "01a1e261d7abb0a634c5"
"""How the tasks on the page begin, whichever they are."""

ID = re.compile(r"\b01[0-9a-f]{18}([0-9a-f]{24})?\b")


class Shell:
    """Runs what the page says."""

    def __init__(self, folder: Path) -> None:
        self._env = environment(PATH=f"{folder}/bin:/usr/bin:/bin")
        self._last = ""
        self.server: subprocess.Popen[str] | None = None

    def run(self, block: str) -> str:
        if block.rstrip().endswith("&"):
            return self._serve(block.rstrip().removesuffix("&"))
        words = ["/bin/sh", "-ec", block.replace(SHOWN_ID, self._last)]
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self._env,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        self._last = next((found[0][:20] for found in ID.finditer(done.stdout)), self._last)
        return done.stdout

    def _serve(self, line: str) -> str:
        # Another program may use port 8000 here.
        words = ["/bin/sh", "-c", f"exec {line.replace(':8000', ':0')}"]
        self.server = subprocess.Popen(
            words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=self._env
        )
        assert self.server.stderr is not None
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", self.server.stderr.readline())


@pytest.fixture
def shell(folder: Path) -> Iterator[Shell]:
    for name, text in FLOWS:
        Path(name).write_text(text)
    program = folder / "bin" / "raincheck"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {PROGRAM[0]} -c '{PROGRAM[2]}' \"$@\"\n")
    program.chmod(0o755)
    shell = Shell(folder)
    yield shell
    if shell.server is not None:
        shell.server.send_signal(signal.SIGTERM)
        shell.server.communicate(timeout=PATIENCE)
        assert shell.server.returncode == 0


def normal(text: str) -> list[str]:
    """Without what is different each time, and how far a task happened to be when it was looked at."""
    saved = [line for line in text.splitlines() if not re.match(r"raincheck: \w+: (working|input required)", line)]
    return [ID.sub(lambda found: f"ID{len(found[0])}", line) for line in saved]


def test_the_output_on_the_page_is_what_is_printed(shell: Shell) -> None:
    for block, output in BLOCKS:
        assert normal(shell.run(block)) == normal(output), block


def test_every_block_of_commands_is_followed_by_its_output() -> None:
    assert PAGE.count("```sh") == len(BLOCKS) == 11
