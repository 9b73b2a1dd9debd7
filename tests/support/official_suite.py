"""Runs the official conformance suite against a server in a separate process, and reads the results."""

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

TIMEOUT = 60
FOLDER = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True)
class Check:
    scenario: str
    id: str
    status: str
    """SUCCESS, FAILURE, WARNING, SKIPPED, or INFO for a remark."""

    message: str = ""

    @property
    def verdict(self) -> tuple[str, str, str]:
        """The part that is equal in two runs if the server behaves the same."""
        return self.scenario, self.id, self.status


def run_suite(node: Node, url: str, folder: Path, *selection: str) -> list[Check]:
    """Run `--scenario NAME` or `--requirements REVISION` with output in `folder`. Returns the checks in order."""
    done = subprocess.run(
        [node.program, node.suite, "server", "--url", url, *selection, "-o", folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    checks = list(read_checks(folder))
    assert checks, f"the suite checked nothing:\n{done.stdout}\n{done.stderr}"
    return checks


def read_checks(folder: Path) -> Iterator[Check]:
    for results in sorted(folder.glob("server-*")):
        name = FOLDER.fullmatch(results.name)
        assert name is not None, f"{results} does not have the name of a results folder of the suite"
        scenario = name["scenario"]
        file = results / "checks.json"
        if not file.exists():
            yield Check(scenario, scenario, "FAILURE", "the scenario ended without results")
            continue
        for check in json.loads(file.read_text()):
            yield Check(scenario, check["id"], check["status"], check.get("errorMessage") or "")


def describe(checks: Iterable[Check]) -> str:
    return "\n".join(f"{check.status} {check.scenario} {check.id}: {check.message}" for check in checks)


@contextlib.contextmanager
def serving(script: Path, *arguments: str, log: Path) -> Generator[str]:
    """Run `script --port N` with the rest of the arguments, and yield its URL. Its output goes into `log`."""
    port = find_free_port()
    command = [sys.executable, script, "--port", str(port), *arguments]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as server:
        try:
            wait_until_it_listens(server, port)
            yield f"http://127.0.0.1:{port}/mcp"
        except BaseException as error:
            error.add_note(f"{script.name} printed:\n{log.read_text(errors='replace')}")
            raise
        finally:
            stop(server)


def find_free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_until_it_listens(server: subprocess.Popen[bytes], port: int) -> None:
    """Poll until another process listens, which sends no event."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT):
            return
        assert server.poll() is None, f"the server exited with status {server.returncode} before it listened"
        assert time.monotonic() < deadline, f"the server does not listen after {TIMEOUT} s"
        time.sleep(0.02)


def stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(timeout=60)
    except subprocess.TimeoutExpired:
        server.kill()
