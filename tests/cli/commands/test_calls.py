"""Tests for `raincheck wait`, `get`, `cancel` and `answer` on saved calls."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from raincheck.client import SavedCalls, TaskClient, answer_later
from tests.support.cli.terminal import COMMAND, OLDER_COMMAND, list_saved_calls, run

pytestmark = pytest.mark.usefixtures("workshop")

COMMANDS = pytest.mark.parametrize("command", [COMMAND, OLDER_COMMAND], ids=["2026-07-28", "2025-11-25"])


def left(*words: str) -> str:
    """The id of a task that was left under way."""
    done = run("call", *words, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["task_id"]


def run_json(*words: str, exit_code: int = 0) -> Any:
    done = run(*words, "--json")
    assert done.returncode == exit_code, done.stderr
    return json.loads(done.stdout)


def test_there_are_no_saved_calls_at_first() -> None:
    done = run("wait")
    assert (done.returncode, done.stdout) == (0, "no saved calls\n")
    assert list_saved_calls() == []


def test_saved_calls_are_listed(url: str) -> None:
    first, second = left(url, "hold"), left(url, "confirm")
    lines = [line.split() for line in run("wait").stdout.splitlines()]
    assert lines[0] == ["task", "tool", "since", "server"]
    assert [(line[0], line[1], line[3]) for line in lines[1:]] == [
        (first[:20], "hold", url),
        (second[:20], "confirm", url),
    ]


def test_wait_returns_the_result_and_removes_the_saved_call(url: str) -> None:
    task = left(url, "hold")
    Path("go").touch()
    done = run("wait", f"{task[:14]}…")
    assert (done.returncode, done.stdout) == (0, "let go\n")
    assert list_saved_calls() == []
    again = run("wait", task)
    assert again.returncode == 2
    assert f"no call '{task}' is in " in again.stderr
    assert "raincheck wait lists the saved calls" in again.stderr


def test_wait_accepts_a_timeout(url: str) -> None:
    task = left(url, "hold")
    task_ref = run_json("wait", task, "--timeout", "0.3", exit_code=4)
    assert task_ref["task_id"] == task
    assert list_saved_calls() == [task_ref]


def test_an_ambiguous_prefix_is_refused(url: str) -> None:
    first, second = left(url, "hold"), left(url, "hold")
    start = next(first[:end] for end in range(len(first), 0, -1) if second.startswith(first[:end]))
    done = run("get", start)
    assert done.returncode == 2
    assert f"2 ids start with '{start}' ({first[:20]}, {second[:20]}): write more of the id" in done.stderr


def test_get_prints_the_status_and_the_call_stays_saved(url: str) -> None:
    task = left(url, "hold")
    done = run("get", task[:20])
    assert (done.returncode, done.stdout) == (4, "working, 1 of 4, holding\n")
    facts = {"task_id": task, "status": "working", "message": "holding", "progress": {"done": 1, "total": 4}}
    assert run_json("get", task, exit_code=4) == facts
    Path("go").touch()
    assert run("wait", task, "--timeout", "30", "--calls", "none.book").returncode == 2
    while run("get", task).returncode == 4:
        pass
    for _ in range(2):
        done = run("get", task)
        assert (done.returncode, done.stdout) == (0, "let go\n")
    assert len(list_saved_calls()) == 1


def test_a_failed_task_exits_with_one(url: str) -> None:
    task = left(url, "crash")
    done = run("wait", task)
    assert done.returncode == 1
    assert "the press is broken" in done.stderr


@COMMANDS
def test_cancel_cancels_a_saved_call(command: str) -> None:
    task = left(command, "hold")
    done = run("cancel", task[:20])
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"raincheck: task {task[:20]} is cancelled\n"
    assert list_saved_calls() == []


def test_a_cancelled_call_is_removed_from_the_saved_calls(url: str) -> None:
    task = left(url, "hold")
    assert run("cancel", task).returncode == 0
    done = run("cancel", task)
    assert done.returncode == 2
    assert f"no call '{task}' is in " in done.stderr
    assert "once its outcome was printed or it was cancelled" in done.stderr


def test_a_task_that_another_client_cancelled_exits_with_one(url: str) -> None:
    task = left(url, "hold")
    assert run_json("cancel", task, "--calls", copied_calls_file()) == {"task_id": task, "status": "cancelled"}
    done = run("wait", task)
    assert done.returncode == 1
    assert "was cancelled" in done.stderr


def copied_calls_file() -> str:
    """A copy of the file of saved calls, for another client."""
    Path("other.book").write_bytes(Path(".local/state/raincheck/calls.book").read_bytes())
    return "other.book"


def test_cancelling_an_ended_call_exits_with_one(url: str) -> None:
    task = left(url, "crash")
    while run("get", task).returncode == 4:
        pass
    done = run("cancel", task)
    assert done.returncode == 1
    assert "had already ended (completed): raincheck wait" in done.stderr


def test_without_a_terminal_a_question_exits_with_three_and_how_to_answer() -> None:
    done = run("call", COMMAND, "publish", "name=it")
    assert (done.returncode, done.stdout) == (3, "")
    (task_ref,) = list_saved_calls()
    short = task_ref["task_id"][:20]
    assert done.stderr.splitlines()[-7:] == [
        "raincheck: publish asks: Publish it?",
        "raincheck:   sure=… (boolean)",
        "raincheck:   size=… (one of small, large, optional)",
        "raincheck:   copies=… (integer, optional), How many to print.",
        "raincheck:   to=… (array of one of web, paper, radio, optional)",
        f"raincheck: answer with: raincheck answer {short} name=value … (or --decline)",
        f"raincheck: then: raincheck wait {short}",
    ]
    asked = run_json("get", task_ref["task_id"], exit_code=3)
    assert (asked["task_id"], asked["status"]) == (task_ref["task_id"], "input_required")
    assert [question["message"] for question in asked["questions"]] == ["Publish it?"]
    assert asked["questions"][0]["schema"]["required"] == ["sure"]


@COMMANDS
def test_a_question_is_answered_from_the_shell(command: str) -> None:
    assert run("call", command, "publish", "name=it").returncode == 3
    (task_ref,) = list_saved_calls()
    done = run("answer", task_ref["task_id"][:20], "sure=yes", "to=web", "to=radio")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("raincheck: answered: raincheck wait ")
    waited = run("wait", task_ref["task_id"])
    assert (waited.returncode, waited.stdout) == (0, "accept: {'sure': True, 'to': ['web', 'radio']}\n")


@pytest.mark.parametrize(("option", "action"), [("--decline", "decline"), ("--dismiss", "cancel")])
def test_a_question_is_declined_from_the_shell(url: str, option: str, action: str) -> None:
    task = left(url, "confirm")
    assert run("wait", task).returncode == 3
    told_of = run_json("answer", task, option)
    assert (told_of["task_id"], told_of["action"]) == (task, action)
    waited = run("wait", task)
    assert (waited.returncode, waited.stdout) == (0, f"{action}\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "'sure' is missing: sure=… (boolean)"),
        (["sure=perhaps"], "'sure' is invalid, 'perhaps' is not of type 'boolean': sure=… (boolean)"),
        (["sure=yes", "siez=small"], "unknown argument 'siez', did you mean 'size'?"),
        (["--key", "zzz", "sure=yes"], "the key 'zzz' matches no single question: the open questions are "),
        (["sure=yes", "--decline"], "--decline, --dismiss and an answer exclude each other"),
    ],
)
def test_a_wrong_answer_is_not_sent(url: str, words: list[str], why: str) -> None:
    task = left(url, "publish", "name=it")
    assert run("wait", task).returncode == 3
    done = run("answer", task, *words)
    assert done.returncode == 2
    assert why in done.stderr
    assert run("get", task).returncode == 3


def test_answering_a_task_without_a_question_is_refused(url: str) -> None:
    done = run("answer", left(url, "hold"), "x=1")
    assert done.returncode == 2
    assert "the task has no open question: it is working" in done.stderr


def test_several_questions_are_distinguished_by_their_keys(url: str) -> None:
    task = left(url, "several")
    assert run("wait", task).returncode == 3
    asked = run_json("get", task, exit_code=3)["questions"]
    assert {question["message"] for question in asked} == {"First?", "Second?"}
    done = run("answer", task, "word=x")
    assert done.returncode == 2
    assert "the task has several open questions: choose one with --key" in done.stderr
    for question in asked:
        assert run("answer", task, "--key", question["key"], f"word={question['message'][0]}").returncode == 0
    assert run("wait", task).stdout == "F and S\n"


def test_a_call_without_a_task_can_not_wait_for_an_answer() -> None:
    done = run("call", OLDER_COMMAND, "choose")
    assert done.returncode == 1
    assert (
        "choose asks: Which one?. There is no terminal to ask at, and the call is not a task that could wait"
        in done.stderr
    )


def test_a_sampling_request_can_be_answered_from_the_shell(url: str) -> None:
    async def begin() -> str:
        calls_file = SavedCalls(".local/state/raincheck/calls.book")
        async with TaskClient(url, sampling_callback=answer_later, saved_calls=calls_file) as client:
            return (await client.call("think")).task_id or ""

    Path(".local/state/raincheck").mkdir(parents=True, exist_ok=True)
    task = asyncio.run(begin())
    asked = run("wait", task)
    assert asked.returncode == 3
    assert "text=… (string), the reply of the model" in asked.stderr
    assert run("answer", task, "--decline").returncode == 2
    assert run("answer", task, "text=I thought.").returncode == 0
    assert run("wait", task).stdout == "I thought.\n"


def test_a_command_server_is_restarted_in_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    task = left(COMMAND, "hold")
    Path("go").touch()
    home = str(Path.cwd())
    Path("elsewhere").mkdir(exist_ok=True)
    monkeypatch.chdir("elsewhere")
    done = run("wait", task, env={"HOME": home})
    assert (done.returncode, done.stdout) == (0, "let go\n")


def test_a_call_whose_task_is_unknown_can_be_removed(url: str) -> None:
    task = left(url, "hold")
    rename(task)
    for command in ("wait", "get", "cancel"):
        done = run(command, "ffff")
        assert done.returncode == 2
        assert "does not know task ffff" in done.stderr
        assert "raincheck wait --forget ffff" in done.stderr
    done = run("wait", "--forget", "ffff")
    assert done.returncode == 0
    assert list_saved_calls() == []


def rename(task: str) -> None:
    """Change the saved id to one that no task has."""
    with sqlite3.connect(".local/state/raincheck/calls.book") as calls_file:
        other = f"ffff{task[4:]}"
        calls_file.execute("UPDATE slips SET task_id = ?, slip = replace(slip, ?, ?)", (other, task, other))
    calls_file.close()


def test_the_file_of_saved_calls_is_set_by_an_option_or_a_variable(url: str) -> None:
    Path("mine.book").unlink(missing_ok=True)
    done = run("call", url, "hold", "--detach", "--calls", "mine.book")
    assert "raincheck wait" in done.stderr
    assert "--calls mine.book" in done.stderr
    assert list_saved_calls() == []
    task_refs = json.loads(run("wait", "--json", env={"RAINCHECK_CALLS": "mine.book"}).stdout)
    assert [task_ref["tool"] for task_ref in task_refs] == ["hold"]


def test_a_file_that_does_not_contain_saved_calls_is_left_unchanged(url: str) -> None:
    Path("notes.txt").write_text("not a database, and long enough to be read " * 20)
    before = Path("notes.txt").read_bytes()
    done = run("call", url, "hold", "--detach", "--calls", "notes.txt")
    assert done.returncode == 2
    assert "notes.txt" in done.stderr
    assert Path("notes.txt").read_bytes() == before
