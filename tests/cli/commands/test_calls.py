"""`raincheck wait`, `get`, `cancel` and `answer`: calls that another command left under way."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from raincheck.client import SavedCalls, TaskClient, answer_later
from tests.support.cli.terminal import COMMAND, OLDER_COMMAND, held, run

pytestmark = pytest.mark.usefixtures("workshop")

COMMANDS = pytest.mark.parametrize("command", [COMMAND, OLDER_COMMAND], ids=["2026-07-28", "2025-11-25"])


def left(*words: str) -> str:
    """The id of a task that was left under way."""
    done = run("call", *words, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["task_id"]


def told(*words: str, ends_with: int = 0) -> Any:
    done = run(*words, "--json")
    assert done.returncode == ends_with, done.stderr
    return json.loads(done.stdout)


def test_nothing_is_under_way_at_first() -> None:
    done = run("wait")
    assert (done.returncode, done.stdout) == (0, "no calls are under way\n")
    assert held() == []


def test_what_is_under_way_is_listed(url: str) -> None:
    first, second = left(url, "hold"), left(url, "confirm")
    lines = [line.split() for line in run("wait").stdout.splitlines()]
    assert lines[0] == ["task", "tool", "since", "server"]
    assert [(line[0], line[1], line[3]) for line in lines[1:]] == [
        (first[:20], "hold", url),
        (second[:20], "confirm", url),
    ]


def test_a_call_is_waited_for_and_then_struck_off(url: str) -> None:
    task = left(url, "hold")
    Path("go").touch()
    done = run("wait", f"{task[:14]}…")
    assert (done.returncode, done.stdout) == (0, "let go\n")
    assert held() == []
    again = run("wait", task)
    assert again.returncode == 2
    assert f"no call '{task}' is in " in again.stderr
    assert "raincheck wait lists those that are" in again.stderr


def test_waiting_may_have_an_end(url: str) -> None:
    task = left(url, "hold")
    slip = told("wait", task, "--timeout", "0.3", ends_with=4)
    assert slip["task_id"] == task
    assert held() == [slip]


def test_a_beginning_that_several_have_is_not_enough(url: str) -> None:
    first, second = left(url, "hold"), left(url, "hold")
    start = next(first[:end] for end in range(len(first), 0, -1) if second.startswith(first[:end]))
    done = run("get", start)
    assert done.returncode == 2
    assert f"2 ids begin with '{start}' ({first[:20]}, {second[:20]}): write more of it" in done.stderr


def test_how_a_call_is_now_can_be_seen_and_it_stays_in_the_book(url: str) -> None:
    task = left(url, "hold")
    done = run("get", task[:20])
    assert (done.returncode, done.stdout) == (4, "working, 1 of 4, holding\n")
    facts = {"task_id": task, "status": "working", "message": "holding", "progress": {"done": 1, "total": 4}}
    assert told("get", task, ends_with=4) == facts
    Path("go").touch()
    assert run("wait", task, "--timeout", "30", "--calls", "none.book").returncode == 2
    while run("get", task).returncode == 4:
        pass
    for _ in range(2):
        done = run("get", task)
        assert (done.returncode, done.stdout) == (0, "let go\n")
    assert len(held()) == 1


def test_a_task_that_failed_ends_with_one(url: str) -> None:
    task = left(url, "crash")
    done = run("wait", task)
    assert done.returncode == 1
    assert "the press is broken" in done.stderr


@COMMANDS
def test_a_call_is_cancelled(command: str) -> None:
    task = left(command, "hold")
    done = run("cancel", task[:20])
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"raincheck: task {task[:20]} is cancelled\n"
    assert held() == []


def test_a_call_that_was_cancelled_is_not_in_the_book_any_more(url: str) -> None:
    task = left(url, "hold")
    assert run("cancel", task).returncode == 0
    done = run("cancel", task)
    assert done.returncode == 2
    assert f"no call '{task}' is in " in done.stderr
    assert "without those whose end was told, or which were cancelled" in done.stderr


def test_what_somebody_else_cancelled_ends_with_one(url: str) -> None:
    task = left(url, "hold")
    assert told("cancel", task, "--calls", copied_book()) == {"task_id": task, "status": "cancelled"}
    done = run("wait", task)
    assert done.returncode == 1
    assert "was cancelled" in done.stderr


def copied_book() -> str:
    """A book like ours, of somebody else."""
    Path("other.book").write_bytes(Path(".local/state/raincheck/calls.book").read_bytes())
    return "other.book"


def test_what_has_ended_is_not_cancelled(url: str) -> None:
    task = left(url, "crash")
    while run("get", task).returncode == 4:
        pass
    done = run("cancel", task)
    assert done.returncode == 1
    assert "had ended before (completed): raincheck wait" in done.stderr


def test_without_a_terminal_a_question_ends_with_three_and_says_how_to_answer() -> None:
    done = run("call", COMMAND, "publish", "name=it")
    assert (done.returncode, done.stdout) == (3, "")
    (slip,) = held()
    short = slip["task_id"][:20]
    assert done.stderr.splitlines()[-7:] == [
        "raincheck: publish asks: Publish it?",
        "raincheck:   sure=… (boolean)",
        "raincheck:   size=… (one of small, large, may be left out)",
        "raincheck:   copies=… (integer, may be left out), How many to print.",
        "raincheck:   to=… (array of one of web, paper, radio, may be left out)",
        f"raincheck: answer with: raincheck answer {short} name=value … (or --decline)",
        f"raincheck: then: raincheck wait {short}",
    ]
    asked = told("get", slip["task_id"], ends_with=3)
    assert (asked["task_id"], asked["status"]) == (slip["task_id"], "input_required")
    assert [question["message"] for question in asked["questions"]] == ["Publish it?"]
    assert asked["questions"][0]["schema"]["required"] == ["sure"]


@COMMANDS
def test_a_question_is_answered_from_the_shell(command: str) -> None:
    assert run("call", command, "publish", "name=it").returncode == 3
    (slip,) = held()
    done = run("answer", slip["task_id"][:20], "sure=yes", "to=web", "to=radio")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("raincheck: answered. raincheck wait ")
    waited = run("wait", slip["task_id"])
    assert (waited.returncode, waited.stdout) == (0, "accept: {'sure': True, 'to': ['web', 'radio']}\n")


@pytest.mark.parametrize(("option", "action"), [("--decline", "decline"), ("--dismiss", "cancel")])
def test_a_question_is_declined_from_the_shell(url: str, option: str, action: str) -> None:
    task = left(url, "confirm")
    assert run("wait", task).returncode == 3
    told_of = told("answer", task, option)
    assert (told_of["task_id"], told_of["action"]) == (task, action)
    waited = run("wait", task)
    assert (waited.returncode, waited.stdout) == (0, f"{action}\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "'sure' is missing: sure=… (boolean)"),
        (["sure=perhaps"], "'sure' is wrong, 'perhaps' is not of type 'boolean': sure=… (boolean)"),
        (["sure=yes", "siez=small"], "'siez' is no argument of it, did you mean 'size'?"),
        (["--key", "zzz", "sure=yes"], "no single question has the key 'zzz': the task asks "),
        (["sure=yes", "--decline"], "one of --decline, --dismiss and an answer"),
    ],
)
def test_a_wrong_answer_is_not_sent(url: str, words: list[str], why: str) -> None:
    task = left(url, "publish", "name=it")
    assert run("wait", task).returncode == 3
    done = run("answer", task, *words)
    assert done.returncode == 2
    assert why in done.stderr
    assert run("get", task).returncode == 3


def test_a_task_that_asks_nothing_can_not_be_answered(url: str) -> None:
    done = run("answer", left(url, "hold"), "x=1")
    assert done.returncode == 2
    assert "the task asks nothing just now: it is working" in done.stderr


def test_several_questions_are_told_apart_by_their_keys(url: str) -> None:
    task = left(url, "several")
    assert run("wait", task).returncode == 3
    asked = told("get", task, ends_with=3)["questions"]
    assert {question["message"] for question in asked} == {"First?", "Second?"}
    done = run("answer", task, "word=x")
    assert done.returncode == 2
    assert "the task asks several things: say which by --key" in done.stderr
    for question in asked:
        assert run("answer", task, "--key", question["key"], f"word={question['message'][0]}").returncode == 0
    assert run("wait", task).stdout == "F and S\n"


def test_a_call_that_is_no_task_can_not_wait_for_an_answer() -> None:
    done = run("call", OLDER_COMMAND, "choose")
    assert done.returncode == 1
    assert "choose asks: Which one?. There is no terminal to ask at, and no task that could wait" in done.stderr


def test_what_a_model_is_asked_can_be_answered_by_whoever_knows(url: str) -> None:
    async def begin() -> str:
        book = SavedCalls(".local/state/raincheck/calls.book")
        async with TaskClient(url, sampling_callback=answer_later, saved_calls=book) as client:
            return (await client.call("think")).task_id or ""

    Path(".local/state/raincheck").mkdir(parents=True, exist_ok=True)
    task = asyncio.run(begin())
    asked = run("wait", task)
    assert asked.returncode == 3
    assert "text=… (string), what a model would reply" in asked.stderr
    assert run("answer", task, "--decline").returncode == 2
    assert run("answer", task, "text=I thought.").returncode == 0
    assert run("wait", task).stdout == "I thought.\n"


def test_a_server_is_started_where_it_was_started_first(monkeypatch: pytest.MonkeyPatch) -> None:
    task = left(COMMAND, "hold")
    Path("go").touch()
    home = str(Path.cwd())
    Path("elsewhere").mkdir(exist_ok=True)
    monkeypatch.chdir("elsewhere")
    done = run("wait", task, env={"HOME": home})
    assert (done.returncode, done.stdout) == (0, "let go\n")


def test_a_task_that_its_server_does_not_know_can_be_forgotten(url: str) -> None:
    task = left(url, "hold")
    rename(task)
    for command in ("wait", "get", "cancel"):
        done = run(command, "ffff")
        assert done.returncode == 2
        assert "does not know task ffff" in done.stderr
        assert "raincheck wait --forget ffff" in done.stderr
    done = run("wait", "--forget", "ffff")
    assert done.returncode == 0
    assert held() == []


def rename(task: str) -> None:
    """Have another id in the book than the task has."""
    with sqlite3.connect(".local/state/raincheck/calls.book") as book:
        other = f"ffff{task[4:]}"
        book.execute("UPDATE slips SET task_id = ?, slip = replace(slip, ?, ?)", (other, task, other))
    book.close()


def test_the_book_is_named_by_an_option_or_a_variable(url: str) -> None:
    Path("mine.book").unlink(missing_ok=True)
    done = run("call", url, "hold", "--detach", "--calls", "mine.book")
    assert "raincheck wait" in done.stderr
    assert "--calls mine.book" in done.stderr
    assert held() == []
    slips = json.loads(run("wait", "--json", env={"RAINCHECK_CALLS": "mine.book"}).stdout)
    assert [slip["tool"] for slip in slips] == ["hold"]


def test_a_file_that_is_no_book_is_left_alone(url: str) -> None:
    Path("notes.txt").write_text("not a book, and long enough to be looked at " * 20)
    before = Path("notes.txt").read_bytes()
    done = run("call", url, "hold", "--detach", "--calls", "notes.txt")
    assert done.returncode == 2
    assert "notes.txt" in done.stderr
    assert Path("notes.txt").read_bytes() == before
