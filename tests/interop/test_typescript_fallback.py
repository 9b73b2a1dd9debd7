"""The official TypeScript client, without task support, gets the results of calls that outlast its wait.

It validates structured content against the schemas of the tools. The script checks each step, and this test checks that
all steps ran and passed.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.node import node_or_skip
from tests.support.official_suite import serving

HERE = Path(__file__).parent
SERVER = ROOT / "tests/support/server/fallback/example_server.py"
WAIT = ("--wait", "4")
"""Seconds that a call waits. `drive_fallback.mjs` has the same value."""

STEPS = [
    "listed",
    "at once",
    "in the end",
    "picture",
    "tool error",
    "protocol error",
    "in words",
    "through the host",
    "progress",
    "unknown",
    "lost",
    "understood",
]


def drive(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    node = node_or_skip()
    script = node.copy_script(HERE / "drive_fallback.mjs", folder, HERE / "steps.mjs")
    return subprocess.run([node.program, script, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_the_typescript_sdk_uses_fallback_tasks(transport: str, tmp_path: Path) -> None:
    if transport == "stdio":
        store = ("--store", str(tmp_path / "tasks.db"))
        done = drive(tmp_path, "stdio", sys.executable, str(SERVER), "--transport", "stdio", *store, *WAIT)
    else:
        with serving(SERVER, *WAIT, log=tmp_path / "server.log") as url:
            done = drive(tmp_path, "http", url)
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = "\n".join(f"{step['step']}: {step['found']}" for step in steps if not step["ok"])
    assert not wrong, wrong
    # Some steps run concurrently.
    assert sorted(step["step"] for step in steps) == sorted(STEPS), f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, done.stderr
