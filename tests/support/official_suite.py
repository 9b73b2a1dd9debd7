"""Runs the official conformance suite against a server in a process of its own, and reads what it found."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.node import Node

PATIENCE = 60
FOLDER = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True)
class Check:
    scenario: str
    id: str
    status: str
    """SUCCESS, FAILURE, WARNING, SKIPPED, or INFO for what the suite merely noted."""

    message: str = ""

    @property
    def verdict(self) -> tuple[str, str, str]:
        """What two runs have in common when the server does the same in both."""
        return self.scenario, self.id, self.status


def run_suite(node: Node, url: str, folder: Path, *selection: str) -> list[Check]:
    """All checks of `--scenario NAME` or `--requirements REVISION`, in order. The suite writes into `folder`."""
    done = subprocess.run(
        [node.program, node.suite, "server", "--url", url, *selection, "-o", folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    checks = list(read_checks(folder))
    assert checks, f"the suite checked nothing:\n{done.stdout}\n{done.stderr}"
    return checks


def read_checks(folder: Path) -> Iterator[Check]:
    for place in sorted(folder.glob("server-*")):
        name = FOLDER.fullmatch(place.name)
        assert name is not None, f"{place} is not named as the suite names its results"
        scenario = name["scenario"]
        file = place / "checks.json"
        if not file.exists():
            yield Check(scenario, scenario, "FAILURE", "the scenario broke off")
            continue
        for check in json.loads(file.read_text()):
            yield Check(scenario, check["id"], check["status"], check.get("errorMessage") or "")


def describe(checks: Iterable[Check]) -> str:
    return "\n".join(f"{check.status} {check.scenario} {check.id}: {check.message}" for check in checks)


@contextlib.contextmanager
def serving(script: Path, *arguments: str, log: Path) -> Generator[str]:
    """Run `script --port N` with the rest of the arguments, and give its URL. What it prints goes into `log`."""
    port = find_free_port()
    command = [sys.executable, script, "--port", str(port), *arguments]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as server:
        try:
            wait_until_it_listens(server, port)
            yield f"http://127.0.0.1:{port}/mcp"
        except BaseException as trouble:
            trouble.add_note(f"{script.name} printed:\n{log.read_text(errors='replace')}")
            raise
        finally:
            stop(server)


def find_free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_until_it_listens(server: subprocess.Popen[bytes], port: int) -> None:
    """It is another process, so there is nothing to wait on but time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
            return
        assert server.poll() is None, f"the server ended with {server.returncode} before it listened"
        assert time.monotonic() < deadline, f"the server does not listen after {PATIENCE} s"
        time.sleep(0.02)


def stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(timeout=60)
    except subprocess.TimeoutExpired:
        server.kill()
