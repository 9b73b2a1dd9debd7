"""The examples run: each checks its own claims, and prints them at the end."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SERVERS = {"conformance.py"}
"""They run until they are stopped. The official suite checks them, in `tests/interop`."""


@pytest.mark.parametrize("example", [path for path in EXAMPLES if path.name not in SERVERS], ids=lambda path: path.name)
def test_an_example_runs_and_shows_its_claims(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, example], capture_output=True, text=True, check=False, timeout=250, cwd=tmp_path
    )
    # On a machine that is busy enough, a worker rightly reports that its event loop was held up.
    printed = [line for line in done.stderr.splitlines() if not line.startswith("the event loop has not responded")]
    assert (done.returncode, printed) == (0, [])
    assert done.stdout.splitlines()[-2].startswith("Shown: ")
    # Colours are for terminals.
    assert "\x1b" not in done.stdout


def test_every_example_is_listed() -> None:
    listed = (ROOT / "examples/README.md").read_text()
    assert [example.name for example in EXAMPLES if example.name not in listed] == []
