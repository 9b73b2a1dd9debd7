"""Tests for `raincheck call` on real servers, over HTTP, stdio and a Unix socket."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cli.terminal import COMMAND, PROGRAM, environment, list_saved_calls, run, run_in_process, serving

pytestmark = pytest.mark.usefixtures("workshop")


def test_an_immediate_result_is_printed(url: str) -> None:
    done = run("call", url, "add", "a=2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3.5\n", "")


def test_a_task_is_reported_on_stderr_and_its_result_is_printed(url: str) -> None:
    Path("hold").touch()
    process = subprocess.Popen(
        [*PROGRAM, "call", url, "build", "parts=3", "colour=blue", "tags=a", "tags=b"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("raincheck: build is task 0")
    assert process.stderr.readline() == "raincheck: build: working, 0 of 3, part 1\n"
    Path("hold").unlink()
    out, err = process.communicate()
    assert process.returncode == 0
    assert json.loads(out) == {"parts": 3, "colour": "blue", "tags": ["a", "b"]}
    assert err.splitlines()[-1].startswith("raincheck: build: completed")
    assert list_saved_calls() == []


def test_json_prints_the_protocols_result(url: str) -> None:
    done = run("call", url, "build", "parts=1", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["structuredContent"] == {"parts": 1, "colour": "red", "tags": []}


@pytest.mark.parametrize(("tool", "why"), [("fail", "it failed badly"), ("crash", "the press is broken")])
def test_a_failing_tool_exits_with_one(url: str, tool: str, why: str) -> None:
    done = run("call", url, tool)
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr.splitlines()[-1]
    as_json = run("call", url, tool, "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["isError"] is True


@pytest.mark.parametrize("words", [[], ["--list"], ["add", "--list"]])
def test_without_a_tool_all_of_them_are_listed_with_their_arguments(url: str, words: list[str]) -> None:
    done = run("call", url, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "build\n"
        "  Build something of parts.\n"
        "  parts (integer): How many parts there are.\n"
        '  colour (one of red, blue, default "red")\n'
        "  tags (array of string or null, optional)\n"
    ) in done.stdout
    names = [tool["name"] for tool in json.loads(run("call", url, *words, "--json").stdout)]
    assert names == [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["bild", "parts=1"], "the server has no tool 'bild': did you mean 'build'?"),
        (["zzz"], "the server has no tool 'zzz': it has build, hold, publish, "),
        (["add"], "add can't be called with these values: 'a' is missing: a=… (integer)"),
        (["add", "a=x"], "'a' is invalid, 'x' is not of type 'integer': a=… (integer)"),
        (["add", "a=1", "c=2"], "unknown argument 'c', known arguments: 'a', 'b'"),
        (["build", "parts=x"], "parts=… (integer), How many parts there are."),
        (["add", "5"], "'5' is not an argument: write name=value"),
        (["add", "a=1", "--header", "nonsense"], "write it as 'Name: value'"),
        (
            ["add", "a=1", "--calls", "nowhere/calls.book"],
            "/nowhere for the file of saved calls calls.book: create it first",
        ),
    ],
)
def test_an_invalid_call_exits_with_two_and_a_remedy(url: str, words: list[str], why: str) -> None:
    done = run("call", url, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("raincheck: ")
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_invalid_call_is_an_error_in_json_too(url: str) -> None:
    done = run("call", url, "bild", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout) == {"error": "the server has no tool 'bild': did you mean 'build'?"}


def test_the_schema_can_be_left_to_the_server(url: str) -> None:
    done = run("call", url, "add", "a:=2", "c=3", "--no-check")
    assert (done.returncode, done.stdout) == (0, "3.5\n")


def test_arguments_come_from_a_file_or_from_stdin(url: str) -> None:
    Path("arguments.json").write_text('{"a": 2, "b": 2}')
    assert run("call", url, "add", "@arguments.json").stdout == "4.0\n"
    assert run("call", url, "add", "-", "b=3", given='{"a": 2}').stdout == "5.0\n"


def test_detach_prints_how_to_resume_and_the_task_continues(url: str) -> None:
    done = run("call", url, "hold", "--detach", "--json")
    assert done.returncode == 0
    task_ref = json.loads(done.stdout)
    assert (task_ref["server"], task_ref["tool"]) == (url, "hold")
    short = task_ref["task_id"][:20]
    assert f"keeps running as task {task_ref['task_id']}: raincheck wait {short} waits for it" in done.stderr
    assert list_saved_calls() == [task_ref]
    Path("go").touch()
    waited = run("wait", short)
    assert (waited.returncode, waited.stdout) == (0, "let go\n")
    assert list_saved_calls() == []


def test_detach_prints_an_immediate_result(url: str) -> None:
    done = run("call", url, "add", "a=2", "--detach")
    assert (done.returncode, done.stdout) == (0, "3.5\n")


def test_after_the_timeout_a_task_continues_and_the_command_exits_with_four(url: str) -> None:
    done = run("call", url, "hold", "--timeout", "3")
    assert (done.returncode, done.stdout) == (4, "")
    assert "hold keeps running as task" in done.stderr
    assert "its server ends" not in done.stderr
    assert len(list_saved_calls()) == 1


def test_after_the_timeout_a_call_without_a_task_is_cancelled(url: str) -> None:
    done = run("call", url, "linger", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (1, "")
    assert "linger did not respond in time. It was not a task yet" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_without_a_terminal_does_not_cancel_the_task(url: str, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "call", url, "hold"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stderr is not None
    assert "is task" in process.stderr.readline()
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == 4
    assert "hold keeps running as task" in err


def test_calls_with_the_same_key_start_one_task() -> None:
    words = ["call", COMMAND, "hold", "--detach", "--json", "--idempotency-key", "mine"]
    first, second = (json.loads(run(*words).stdout)["task_id"] for _ in range(2))
    assert first == second


def test_a_server_that_is_a_command_is_started_for_the_call() -> None:
    done = run("call", COMMAND, "build", "parts=1")
    assert (done.returncode, json.loads(done.stdout)["parts"]) == (0, 1)
    assert "the workshop opens" not in done.stderr
    assert "the workshop opens" in run_in_process("call", COMMAND, "add", "a=1", "--verbose").stderr


def test_a_command_server_ends_with_the_command_and_its_task_resumes_with_the_next() -> None:
    done = run("call", COMMAND, "hold", "--timeout", "3")
    assert done.returncode == 4
    assert "hold is stored as task" in done.stderr
    assert ", but its server ends with this command: raincheck wait " in done.stderr
    assert "keeps running" not in done.stderr
    Path("go").touch()
    (task_ref,) = list_saved_calls()
    waited = run("wait", task_ref["task_id"][:16])
    assert (waited.returncode, waited.stdout) == (0, "let go\n")


def test_a_server_on_a_unix_socket_is_called() -> None:
    with serving("--unix", "it.sock"):
        done = run("call", "unix:it.sock", "build", "parts=1")
        assert (done.returncode, json.loads(done.stdout)["parts"]) == (0, 1)
