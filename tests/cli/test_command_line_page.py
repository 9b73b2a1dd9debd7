"""Tests that the output on docs/howto/use-the-command-line.md is what the commands print in a real shell."""

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raincheck.cli.exit_codes import ExitCode
from tests.support import ROOT
from tests.support.cli.terminal import PATIENCE, PROGRAM, environment

PAGE = (ROOT / "docs/howto/use-the-command-line.md").read_text(encoding="utf-8")
SERVER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
BLOCKS = re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)

SHOWN_ID = "01a1e261d7ab"
"""How the task on the page begins, whichever it is."""

ID = re.compile(r"\b01[0-9a-f]{18}([0-9a-f]{24})?\b")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator["Shell"]:
    # Not in a folder of pytest's: its name may be too long for a socket.
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:
        monkeypatch.chdir(folder)
        Path("server.py").write_text(SERVER)
        Path("bin").mkdir()
        Path("bin/raincheck").write_text(f"#!/bin/sh\nexec {PROGRAM[0]} -c '{PROGRAM[2]}' \"$@\"\n")
        Path("bin/raincheck").chmod(0o755)
        Path("bin/python").symlink_to(sys.executable)
        shell = Shell(Path(folder))
        yield shell
        shell.close()
        monkeypatch.undo()


class Shell:
    """Runs what the page says."""

    def __init__(self, folder: Path) -> None:
        path = f"{folder}/bin:/usr/bin:/bin"
        self._env = environment(PATH=path)
        self._folder = folder
        self._servers: list[subprocess.Popen[str]] = []
        self._last = ""

    def run(self, block: str) -> list[str]:
        if block.splitlines()[0].endswith("&"):
            return [self._serve(line.removesuffix("&")) for line in block.splitlines()]
        block = block.replace(SHOWN_ID, self._last)
        done = subprocess.run(
            ["/bin/sh", "-ec", block],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self._env,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        for found in ID.finditer(done.stdout):
            self._last = found[0][:20]
        return done.stdout.splitlines()

    def _serve(self, line: str) -> str:
        # Another program may use port 8000 here.
        words = ["/bin/sh", "-c", f"exec {line.replace(':8000', ':0')}"]
        server = subprocess.Popen(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=self._env)
        self._servers.append(server)
        assert server.stderr is not None
        reported = next(line for line in server.stderr if line.startswith("raincheck: "))
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", reported).rstrip()

    def normal(self, lines: list[str]) -> list[str]:
        """Without what is different each time, and how far a task happened to be when it was looked at."""
        saved = [line for line in lines if not re.fullmatch(r"raincheck: \w+: working.*", line)]
        text = "\n".join(" ".join(line.split()) for line in saved).replace(str(self._folder), "/srv/reports")
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "NOW", text)
        text = re.sub(r"completed, \d of \d", "completed", text)
        return ID.sub(lambda found: f"ID{len(found[0])}", text).splitlines()

    def close(self) -> None:
        for server in self._servers:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=PATIENCE)
            assert server.returncode == 0


def test_the_output_on_the_page_is_what_is_printed(shell: Shell) -> None:
    assert len(BLOCKS) > 7
    for block, output in BLOCKS:
        assert shell.normal(shell.run(block)) == shell.normal(output.splitlines()), block


def test_every_block_of_commands_is_followed_by_its_output() -> None:
    assert PAGE.count("```sh") == len(BLOCKS)


@pytest.mark.parametrize("ending", list(ExitCode))
def test_every_exit_code_is_documented(ending: ExitCode) -> None:
    assert f"\n| {ending.value} | " in PAGE
