"""Tests for what a call saves: the task as soon as it exists, and no secrets."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.cli.terminal import PATIENCE, PROGRAM, environment, list_saved_calls, run

pytestmark = pytest.mark.usefixtures("workshop")

CALLS_FILE = Path(".local/state/raincheck/calls.book")


@contextmanager
def locked_book(seconds: float) -> Generator[threading.Event]:
    """A file of saved calls that another process keeps locked for a while."""
    assert list_saved_calls() == []
    CALLS_FILE.parent.mkdir(parents=True, exist_ok=True)
    release = threading.Event()
    is_held = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(CALLS_FILE, isolation_level=None)) as calls_file:
            calls_file.execute("BEGIN IMMEDIATE")
            is_held.set()
            release.wait(seconds)
            calls_file.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(PATIENCE)
    try:
        yield release
    finally:
        release.set()
        thread.join()


@pytest.fixture
def written(workshop: None, url: str) -> None:
    """An existing, empty file of saved calls."""
    del workshop
    task_ref = json.loads(run("call", url, "hold", "--detach", "--json").stdout)
    assert run("wait", "--forget", task_ref["task_id"]).returncode == 0


@pytest.mark.usefixtures("written")
def test_a_task_continues_if_the_timeout_expires_while_it_is_being_saved(url: str) -> None:
    with locked_book(3):
        done = run("call", url, "hold", "--timeout", "0.5", "--json")
    assert done.returncode == 4, done.stderr
    task_ref = json.loads(done.stdout)
    assert f"hold keeps running as task {task_ref['task_id']}: raincheck wait" in done.stderr
    assert list_saved_calls() == [task_ref]


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_task_continues_if_the_command_is_stopped_while_it_is_being_saved(url: str, number: signal.Signals) -> None:
    before = len(tasks())
    with (
        locked_book(PATIENCE) as release,
        subprocess.Popen(
            [*PROGRAM, "call", url, "hold", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as process,
    ):
        deadline = time.monotonic() + PATIENCE
        while len(tasks()) == before and time.monotonic() < deadline:
            time.sleep(0.1)
        # The caller has its task now, and waits for the locked file.
        time.sleep(1)
        process.send_signal(number)
        time.sleep(0.5)
        release.set()
        printed, reported = process.communicate(timeout=PATIENCE)
    assert process.returncode == 4, reported
    assert list_saved_calls() == [json.loads(printed)]


def tasks() -> list[str]:
    """The tasks of the server."""
    return [task["id"] for task in json.loads(run("tasks", "ls", "--store", "tasks.db", "--json").stdout)]


@pytest.mark.usefixtures("written")
def test_a_task_that_can_not_be_saved_is_reported_with_its_reference(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raincheck.client.saved_calls.LOCK_TIMEOUT", 0.1)
    with locked_book(PATIENCE):
        done = run("call", url, "hold", "--json")
    assert done.returncode == 4
    task_ref = json.loads(done.stdout)
    assert "locked. Store this task reference" in done.stderr
    assert json.dumps(task_ref) in done.stderr


def test_an_unusable_file_of_saved_calls_fails_before_the_call(url: str) -> None:
    before = tasks()
    Path("notes.txt").write_text("not a database, and long enough to be read " * 20)
    assert run("call", url, "hold", "--detach", "--calls", "notes.txt").returncode == 2
    assert tasks() == before


def test_secrets_in_an_address_are_neither_saved_nor_shown(url: str) -> None:
    secret = url.replace("http://", "http://user:PASSW@") + "?token=SECRETTOKEN"
    done = run("call", secret, "hold", "--detach", "--json")
    assert done.returncode == 0
    task_ref = json.loads(done.stdout)
    assert task_ref["server"] == url
    assert "give the address again, with --server URL" in done.stderr
    task = task_ref["task_id"]
    wrong = run("get", task, "--server", "http://127.0.0.1:9/mcp")
    assert wrong.returncode == 2
    assert f"belongs to {url}, not to http://127.0.0.1:9/mcp" in wrong.stderr
    again = run("get", task, "--server", secret)
    assert again.returncode == 4, again.stderr
    lost = run("call", "http://user:PASSW@127.0.0.1:9/mcp?token=SECRETTOKEN", "hold")
    assert "http://127.0.0.1:9/mcp can't be reached" in lost.stderr
    printed = [done, wrong, again, lost, run("wait"), run("wait", "--forget", task)]
    saved = "".join(one.stdout + one.stderr for one in printed) + CALLS_FILE.read_bytes().decode(errors="replace")
    assert "SECRETTOKEN" not in saved
    assert "PASSW" not in saved


def test_secrets_in_a_command_are_saved_but_never_shown() -> None:
    loud = (
        "import sys; print(sys.argv, file=sys.stderr); import runpy; runpy.run_path('server.py', run_name='__main__')"
    )
    Path("loud.py").write_text(loud)
    command = f"env WORKSHOP_TOKEN=SECRETONE {sys.executable} loud.py --api-key=SECRETTWO --password SECRETTHREE"
    called = run("call", command, "hold", "--detach", "--json")
    assert called.returncode == 0, called.stderr
    task = json.loads(called.stdout)["task_id"]
    died = run("call", command, "die")
    assert "--api-key=..., --password, ..." in died.stderr.replace("'", "")
    others = [["wait"], ["wait", "--json"], ["wait", task, "--timeout", "0.1"], ["get", task, "--json"]]
    others += [["get", task, "--server", "http://127.0.0.1:9/mcp"]]
    printed = [called, died, *(run(*words) for words in others)]
    Path("go").touch()
    ended = run("wait", task)
    assert (ended.returncode, ended.stdout) == (0, "let go\n")
    again = json.loads(run("call", command, "hold", "--detach", "--json").stdout)["task_id"]
    printed += [ended, run("wait", "--forget", again)]
    shown = "".join(one.stdout + one.stderr for one in printed)
    assert "WORKSHOP_TOKEN=..." in shown
    assert "SECRET" not in shown
