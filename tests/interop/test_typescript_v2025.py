"""The official TypeScript clients of 2025-11-25 start, follow, list and cancel tasks, and answer input requests.

The scripts check each step, and these tests check that all steps ran and passed.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.node import Node, node_or_skip
from tests.support.official_suite import serving

HERE = Path(__file__).parent
SERVER = ROOT / "examples/conformance.py"
TRANSPORTS = pytest.mark.parametrize("transport", ["http", "stdio"])

SDK_STEPS = [
    "handshake",
    "support",
    "completion",
    "without a task",
    "refused",
    "tool error",
    "protocol error",
    "elicitation",
    "declined",
    "several questions",
    "question first",
    "cancel",
    "cancel while asked",
    "progress",
    "list",
    "unknown",
    "understood",
]
EXTENSION_STEPS = [
    "handshake",
    "completion",
    "without a task",
    "tool error",
    "protocol error",
    "elicitation",
    "cancel",
    "cancel by another",
    "resume",
    "list",
    "unknown",
    "understood",
]
ELICITATION_STEPS = [
    "1.x elicitation",
    "1.x sampling",
    "1.x withdrawn",
    "1.x understood",
    "2.x elicitation",
    "2.x sampling",
    "2.x understood",
]


def run_script(node: Node, name: str, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    script = node.copy_script(HERE / name, folder, HERE / "steps.mjs")
    command = [node.program, script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def drive(name: str, folder: Path, transport: str) -> "subprocess.CompletedProcess[str]":
    node = node_or_skip()
    if transport == "stdio":
        server = (str(SERVER), "--transport", "stdio", "--store", str(folder / "tasks.db"))
        return run_script(node, name, folder, "stdio", sys.executable, *server)
    with serving(SERVER, "--store", "memory:", log=folder / "server.log") as url:
        return run_script(node, name, folder, "http", url)


def assert_driven(name: str, folder: Path, transport: str, expected: list[str]) -> None:
    done = drive(name, folder, transport)
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = "\n".join(f"{step['step']}: {step['found']}" for step in steps if not step["ok"])
    assert not wrong, wrong
    # Some steps run concurrently.
    assert sorted(step["step"] for step in steps) == sorted(expected), f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, done.stderr


@TRANSPORTS
def test_the_typescript_sdk_drives_tasks_of_2025(transport: str, tmp_path: Path) -> None:
    assert_driven("drive_v2025.mjs", tmp_path, transport, SDK_STEPS)


@TRANSPORTS
def test_the_typescript_extension_drives_tasks_of_2025(transport: str, tmp_path: Path) -> None:
    assert_driven("drive_v2025_ext.mjs", tmp_path, transport, EXTENSION_STEPS)


@TRANSPORTS
def test_typescript_clients_answer_input_requests_as_tasks(transport: str, tmp_path: Path) -> None:
    assert_driven("drive_v2025_elicitation.mjs", tmp_path, transport, ELICITATION_STEPS)


def test_a_server_without_tasks_fails_the_steps(tmp_path: Path) -> None:
    node = node_or_skip()
    with serving(ROOT / "tests/support/interop/core_server.py", log=tmp_path / "server.log") as url:
        done = run_script(node, "drive_v2025.mjs", tmp_path, "http", url)
    passed = [step["step"] for step in map(json.loads, done.stdout.splitlines()) if step["ok"]]
    assert set(passed) <= {"list", "understood"}, done.stdout
    assert done.returncode == 1
