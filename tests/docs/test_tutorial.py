"""The commands of the tutorial print the documented output, and so do the snippets of the guides that extend it."""

import re
import socket
import time
import tomllib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.test_snippets import test_the_snippets_of_a_page_run as run_snippets
from tests.support.cli.terminal import at_terminal
from tests.support.docs.pages import ROOT, name_of, text_of
from tests.support.docs.shell import CLIPPED_ID, ID, TIMEOUT, Shell, compared, environment, wait_for_log

PAGE = text_of(ROOT / "docs/tutorial.md")
BLOCKS = [(kind, text) for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)]
INSTALLING = BLOCKS[0][1]
PORT = "8000"
GUIDES = [ROOT / f"docs/howto/{name}.md" for name in ("ask-the-user", "cancel-work", "retry-work")]
TYPED = re.compile(r"^(.*\): )(.+)$")


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Disable the check: a snippet is a program."""


class Reader:
    """A reader who types the commands of the page, and whose task ids and port differ from it."""

    def __init__(self, shell: Shell, home: Path) -> None:
        self.shell = shell
        self.home = home
        self.folder = home / "reports"
        self.ids: dict[str, str] = {}
        """The reader's ids, by the ids on the page."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])

    def save(self, code: str) -> None:
        file = self.folder / "reports.py"
        before = f"{file.read_text()}\n\n" if file.exists() else ""
        file.write_text(f"{before}{code}")

    def type(self, block: str, output: Sequence[str]) -> None:
        lines = block.splitlines()
        at_end = any(TYPED.match(line) for line in output)
        printed = [out for line in lines[: len(lines) - at_end] for out in self._run(line, output)]
        if at_end:
            self._talk(lines[-1], output)
        else:
            self._compare(output, printed)

    def _run(self, line: str, output: Sequence[str]) -> list[str]:
        line = CLIPPED_ID.sub(self._own, line.replace(f":{PORT}", f":{self.port}"))
        if "serve" in line and "server.log" in line:
            (self.folder / "server.log").unlink(missing_ok=True)
        deadline = time.monotonic() + TIMEOUT
        printed = self.shell.run(line)
        # The listed tasks may not be there yet: a human types more slowly.
        while "tasks ls" in line and set(compared(printed)[0]) - set(compared(output)[0]):
            assert time.monotonic() < deadline, printed
            printed = self.shell.run(line)
        if "serve" in line and "server.log" in line:
            wait_for_log(f"'reports' is served at http://127.0.0.1:{self.port}/mcp", self.folder / "server.log")
        return printed

    def _own(self, clipped: re.Match[str]) -> str:
        (own,) = {own[:12] for shown, own in self.ids.items() if shown.startswith(clipped[0])}
        return own

    def _compare(self, output: Sequence[str], printed: list[str]) -> None:
        shown, progress = compared(output)
        compared_lines, happened = compared(printed)
        assert compared_lines == shown
        assert progress <= happened
        pairs = zip(ID.findall("\n".join(output)), ID.findall("\n".join(printed)), strict=True)
        for here, own in pairs:
            assert self.ids.setdefault(here, own) == own, "an id on the page is that of another task"

    def _talk(self, line: str, output: Sequence[str]) -> None:
        words = line.replace(f":{PORT}", f":{self.port}").split()[1:]
        with at_terminal(*words, env=environment(self.home)) as screen:
            for expected in output:
                asked = TYPED.match(expected)
                if asked:
                    screen.expect(f"\n{asked[1]}").type(asked[2])
                else:
                    screen.expect(ID.split(expected)[0])
            assert screen.end() == 0


def test_the_documented_extra_installs_the_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert INSTALLING.splitlines()[-1] == "pip install '.[cli]'"
    assert "cli" in project["optional-dependencies"]
    assert "raincheck" in project["scripts"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in PAGE


@pytest.mark.long
def test_the_commands_of_the_tutorial_print_the_documented_output(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        reader = Reader(shell, tmp_path)
        for number, (kind, text) in enumerate(BLOCKS):
            if kind == "python":
                reader.save(text)
            elif kind == "sh" and text != INSTALLING:
                follows = BLOCKS[number + 1] if number + 1 < len(BLOCKS) else ("", "")
                reader.type(text, follows[1].splitlines() if follows[0] == "text" else [])


def test_every_block_of_the_tutorial_is_typed_or_compared() -> None:
    assert {kind for kind, _ in BLOCKS} == {"python", "sh", "text"}
    for (before, _), (kind, text) in pairwise(BLOCKS):
        assert kind != "text" or before == "sh", f"nothing prints {text!r}"


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_the_snippets_of_a_guide_print_the_documented_output(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_snippets(page)
    shown = "".join(re.findall(r"^```text\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE))
    assert compared(capsys.readouterr().out.splitlines()) == compared(shown.splitlines())
