"""The example workflows are valid, can be drawn, and run as their comments say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workflows.example_files import EXAMPLES

FILES = sorted(EXAMPLES.glob("*.yaml"))
EACH = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def raincheck(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    program = "from raincheck.cli import main; main()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAINCHECK_", "XDG_"))}
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env={**environment, "HOME": str(folder.parent)},
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_the_folder_has_an_example_of_each_use_case() -> None:
    assert [file.stem for file in FILES] == ["export", "extraction", "release", "validation"]


def test_the_examples_are_valid_and_can_be_served_together(tmp_path: Path) -> None:
    done = raincheck("workflow", "check", EXAMPLES, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == []
    assert [one["name"] for one in found["workflows"]] == [file.stem for file in FILES]
    # Each is a tool, so it needs a description.
    assert all(one["description"] for one in found["workflows"])


@pytest.mark.parametrize(("kind", "begins"), [("mermaid", "flowchart TD"), ("svg", "<svg ")])
def test_each_example_can_be_drawn(kind: str, begins: str, tmp_path: Path) -> None:
    done = raincheck("workflow", "graph", EXAMPLES, "--format", kind, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    drawn = json.loads(done.stdout)
    for file in FILES:
        picture, names = drawn[file.stem], names_in(file)
        assert picture.startswith(begins)
        assert len(names) > 2
        assert [name for name in names if name not in picture] == []


def names_in(file: Path) -> list[str]:
    """The names of the steps, or of the states."""
    text = file.read_text()
    steps = re.findall(r"^      - id: (\S+)$", text, re.MULTILINE)
    return steps or re.findall(r"^      (\w+):(?:$| \{kind)", text.partition("    states:\n")[2], re.MULTILINE)


@EACH
def test_an_example_starts_with_how_to_try_it(file: Path) -> None:
    comment = re.match(r"(#.*\n)+", file.read_text())
    assert comment is not None
    for command in ("check", "run"):
        assert f"raincheck workflow {command} {file.name}" in comment[0]
    assert f"raincheck serve {file.name}" in comment[0]


def test_an_example_can_be_tried_as_its_comment_says(tmp_path: Path) -> None:
    file = EXAMPLES / "extraction.yaml"
    done = raincheck("workflow", "run", file, "extraction", "book=ledger", "--store", "tasks.db", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"pages": 12, "amounts": 24, "total": 123.0, "missing": []}


def test_an_example_that_asks_shows_how_to_answer_without_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    subprocess.run(["sh", EXAMPLES / "make-scratch-repository.sh", folder], check=True)  # noqa: S607 - our own
    done = raincheck("workflow", "run", "release.yaml", "release", "tag=v1.0.0", "--json", folder=folder)
    assert done.returncode == 3, done.stderr
    asked = json.loads(done.stdout)
    assert "Publish v1.0.0?" in asked["questions"][0]["message"]
    assert f"raincheck answer {asked['task_id'][:20]}" in done.stderr
