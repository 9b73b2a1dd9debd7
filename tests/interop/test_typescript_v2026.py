"""The official TypeScript client of 2026-07-28 gets results of tasks, answers their input requests and cancels them."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT
from tests.support.node import Node, node_or_skip
from tests.support.official_suite import serving

SERVER = ROOT / "examples/conformance.py"
SCRIPT = Path(__file__).with_name("drive_v2026.mjs")


def drive(node: Node, folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [node.program, node.copy_script(SCRIPT, folder), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    steps = {step["step"]: step["ok"] for step in map(json.loads, done.stdout.splitlines())}
    assert steps == {"compute": True, "confirm": True, "cancel": True}, f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0


def test_the_typescript_client_drives_tasks_over_http(tmp_path: Path) -> None:
    node = node_or_skip()
    with serving(SERVER, "--store", "memory:", log=tmp_path / "server.log") as url:
        drive(node, tmp_path, "http", url)


def test_the_typescript_client_drives_tasks_over_stdio(tmp_path: Path) -> None:
    node = node_or_skip()
    server = (str(SERVER), "--transport", "stdio", "--store", str(tmp_path / "tasks.db"))
    drive(node, tmp_path, "stdio", sys.executable, *server)
