"""What a call leaves in the book: the task as soon as there is one, and nothing that is secret."""

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

from tests.support.cli.terminal import PATIENCE, PROGRAM, environment, held, run

pytestmark = pytest.mark.usefixtures("workshop")

BOOK = Path(".local/state/raincheck/calls.book")


@contextmanager
def locked_book(seconds: float) -> Generator[threading.Event]:
    """A book that somebody else writes into for a while."""
    assert held() == []
    BOOK.parent.mkdir(parents=True, exist_ok=True)
    release = threading.Event()
    is_held = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(BOOK, isolation_level=None)) as book:
            book.execute("BEGIN IMMEDIATE")
            is_held.set()
            release.wait(seconds)
            book.execute("ROLLBACK")

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
    """A book that there is, with nothing in it."""
    del workshop
    slip = json.loads(run("call", url, "hold", "--detach", "--json").stdout)
    assert run("wait", "--forget", slip["task_id"]).returncode == 0


@pytest.mark.usefixtures("written")
def test_a_task_goes_on_though_the_time_is_over_while_it_is_written_down(url: str) -> None:
    with locked_book(3):
        done = run("call", url, "hold", "--timeout", "0.5", "--json")
    assert done.returncode == 4, done.stderr
    slip = json.loads(done.stdout)
    assert f"hold goes on as task {slip['task_id']}: raincheck wait" in done.stderr
    assert held() == [slip]


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_task_goes_on_though_the_command_is_stopped_while_it_is_written_down(
    url: str, number: signal.Signals
) -> None:
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
        # The caller is told of it now, and waits for the book.
        time.sleep(1)
        process.send_signal(number)
        time.sleep(0.5)
        release.set()
        said, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 4, told
    assert held() == [json.loads(said)]


def tasks() -> list[str]:
    """The tasks of the server."""
    return [task["id"] for task in json.loads(run("tasks", "ls", "--store", "tasks.db", "--json").stdout)]


@pytest.mark.usefixtures("written")
def test_a_task_that_can_not_be_written_down_is_told_of(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raincheck.client.saved_calls.LOCK_TIMEOUT", 0.1)
    with locked_book(PATIENCE):
        done = run("call", url, "hold", "--json")
    assert done.returncode == 4
    slip = json.loads(done.stdout)
    assert "locked. Keep this task reference" in done.stderr
    assert json.dumps(slip) in done.stderr


def test_a_book_that_can_not_be_used_is_known_before_anything_is_called(url: str) -> None:
    before = tasks()
    Path("notes.txt").write_text("not a book, and long enough to be looked at " * 20)
    assert run("call", url, "hold", "--detach", "--calls", "notes.txt").returncode == 2
    assert tasks() == before


def test_what_is_secret_in_an_address_is_neither_kept_nor_shown(url: str) -> None:
    secret = url.replace("http://", "http://user:PASSW@") + "?token=SECRETTOKEN"
    done = run("call", secret, "hold", "--detach", "--json")
    assert done.returncode == 0
    slip = json.loads(done.stdout)
    assert slip["server"] == url
    assert "give that again then, by --server URL" in done.stderr
    task = slip["task_id"]
    wrong = run("get", task, "--server", "http://127.0.0.1:9/mcp")
    assert wrong.returncode == 2
    assert f"is known to {url}, and not to http://127.0.0.1:9/mcp" in wrong.stderr
    again = run("get", task, "--server", secret)
    assert again.returncode == 4, again.stderr
    lost = run("call", "http://user:PASSW@127.0.0.1:9/mcp?token=SECRETTOKEN", "hold")
    assert "http://127.0.0.1:9/mcp can't be reached" in lost.stderr
    said = [done, wrong, again, lost, run("wait"), run("wait", "--forget", task)]
    kept = "".join(one.stdout + one.stderr for one in said) + BOOK.read_bytes().decode(errors="replace")
    assert "SECRETTOKEN" not in kept
    assert "PASSW" not in kept


def test_what_is_secret_in_a_command_is_kept_to_start_it_again_and_never_shown() -> None:
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
    said = [called, died, *(run(*words) for words in others)]
    Path("go").touch()
    ended = run("wait", task)
    assert (ended.returncode, ended.stdout) == (0, "let go\n")
    again = json.loads(run("call", command, "hold", "--detach", "--json").stdout)["task_id"]
    said += [ended, run("wait", "--forget", again)]
    shown = "".join(one.stdout + one.stderr for one in said)
    assert "WORKSHOP_TOKEN=..." in shown
    assert "SECRET" not in shown
