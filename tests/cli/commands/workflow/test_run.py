"""`raincheck workflow run`: a workflow is run here, asks here, can be left, and can be begun in the middle."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.cli.terminal import PROGRAM, at_terminal, held, run
from tests.support.cli.workflow_server import FLOWS, write_flows

pytestmark = [pytest.mark.usefixtures("flows"), pytest.mark.timeout(120)]


@pytest.fixture
def flows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with a file of workflows, where `raincheck` is this program."""
    write_flows()
    program = folder / "bin" / "raincheck"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {PROGRAM[0]} -c '{PROGRAM[2]}' \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    # It would keep for good what other tests look for in logs.
    with patch("raincheck.cli.commands.workflow.run.silence_library_logs"):
        yield


def lines(name: str) -> list[str]:
    return Path(name).read_text().splitlines()


def test_the_result_is_printed_and_what_happens_is_told_beside_it() -> None:
    done = run("workflow", "run", "flows.yaml", "release", "tag=v1", "copies=3")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"tag": "v1", "copies": 3, "built": "v1"}
    assert "raincheck: release is task " in done.stderr
    assert "raincheck: release: completed" in done.stderr
    assert held() == []


def test_for_programs_the_result_is_that_of_a_tool() -> None:
    done = run("workflow", "run", "flows.yaml", "release", "tag=v1", "--json")
    assert json.loads(done.stdout)["structuredContent"] == {"tag": "v1", "copies": 2, "built": "v1"}


def test_a_workflow_that_fails_ends_with_one_and_says_why() -> None:
    done = run("workflow", "run", "flows.yaml", "fail")
    assert (done.returncode, done.stdout) == (1, "")
    assert "step 'second' failed" in done.stderr


def test_what_a_function_raises_is_shown_to_whoever_runs_it() -> None:
    Path("functions.py").write_text("def break_it():\n    raise ValueError('a secret')\n")
    Path("raising.yaml").write_text("raincheck: 1\nworkflows: {it: {steps: [{id: a, python: 'functions:break_it'}]}}\n")
    done = run("workflow", "run", "raising.yaml", "it")
    assert done.returncode == 1
    assert "ValueError: a secret" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nope"], "flows.yaml has no workflow 'nope': it has confirm, fail, hold, release"),
        (["release"], "release can't be run like that: 'tag' is missing: tag=… (string), What to release."),
        (["release", "tag=1"], "'1' does not match '^v'"),
        (["release", "tag=v1", "copies=many"], "'many' is not of type 'integer'"),
        (["release", "tag=v1", "restored:={}"], "'restored' is no argument of release"),
        (["release", "tag=v1", "--task", "1"], "say from which step on, with --from"),
        (["release", "--from", "nope"], "release has no step 'nope' to begin with: it has build, publish"),
        (["release", "--from", "publish"], "there is no file"),
    ],
)
def test_what_can_not_be_run_is_told_before_anything_begins(words: list[str], why: str) -> None:
    done = run("workflow", "run", "flows.yaml", *words, "--store", "tasks.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert not Path("built.txt").exists()


@pytest.mark.parametrize(
    ("store", "why"),
    [("memory:", "nobody could come back to it: name a file with --store"), ("nowhere/tasks.db", "there is no folder")],
)
def test_a_store_that_can_not_be_used_is_told(store: str, why: str) -> None:
    done = run("workflow", "run", "flows.yaml", "release", "tag=v1", "--store", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_what_it_asks_is_asked_at_the_terminal() -> None:
    with at_terminal("workflow", "run", "flows.yaml", "confirm") as screen:
        screen.expect("confirm asks: Really?").expect("sure (y or n):").type("y")
        screen.expect('"sure": true')
        assert screen.end() == 0


def test_without_a_terminal_it_says_how_to_answer_and_goes_on_from_there() -> None:
    done = run("workflow", "run", "flows.yaml", "confirm", "--json")
    assert done.returncode == 3
    asked = json.loads(done.stdout)
    assert asked["questions"][0]["message"] == "Really?"
    assert f"answer with: raincheck answer {asked['task_id'][:20]} name=value" in done.stderr
    assert run("answer", asked["task_id"], "sure=no").returncode == 0
    waited = run("wait", asked["task_id"])
    assert (waited.returncode, json.loads(waited.stdout)) == (0, {"sure": False})
    assert held() == []


def test_what_waits_goes_on_as_it_began_though_the_file_has_changed() -> None:
    asked = json.loads(run("workflow", "run", "flows.yaml", "confirm", "--json").stdout)
    write_flows(FLOWS.replace('{sure: "{{ steps.ask.result.sure }}"}', "changed"))
    assert run("answer", asked["task_id"], "sure=no").returncode == 0
    assert json.loads(run("wait", asked["task_id"]).stdout) == {"sure": False}


def test_ctrl_c_offers_to_detach_and_it_can_be_come_back_to() -> None:
    with at_terminal("workflow", "run", "flows.yaml", "hold") as screen:
        screen.expect("hold: wait").press("c")
        screen.expect("[d]etach").type("d")
        screen.expect("rests as task").expect("Either starts the server again.")
        assert screen.end() == 4
    Path("go").touch()
    (slip,) = held()
    assert slip["server"].endswith("raincheck serve flows.yaml")
    assert run("wait", slip["task_id"]).stdout == "old\n"


def test_the_store_that_is_named_is_named_to_whoever_comes_back() -> None:
    assert run("workflow", "run", "flows.yaml", "confirm", "--store", "mine.db").returncode == 3
    (slip,) = held()
    assert slip["server"].endswith("raincheck serve flows.yaml --store mine.db")
    assert Path("mine.db").exists()


def test_from_a_step_on_what_was_before_it_is_not_run_again() -> None:
    assert run("workflow", "run", "flows.yaml", "fail").returncode == 1
    Path("mended").touch()
    done = run("workflow", "run", "flows.yaml", "fail", "--from", "second")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"first": "completed"})
    assert "2 results of steps are those of task" in done.stderr
    assert sorted(lines("fail.txt")) == ["beside", "first", "second", "second"]


def test_from_a_step_on_the_file_may_have_been_mended_and_arguments_are_those_of_before() -> None:
    run("workflow", "run", "flows.yaml", "release", "tag=v1", "copies=5")
    write_flows(FLOWS.replace('copies: "{{ input.copies }}"', 'number: "{{ input.copies }}"'))
    done = run("workflow", "run", "flows.yaml", "release", "--from", "publish")
    assert json.loads(done.stdout) == {"tag": "v1", "number": 5, "built": "v1"}
    assert "1 result of a step is that of task" in done.stderr
    assert "careful" not in done.stderr
    again = run("workflow", "run", "flows.yaml", "release", "copies=6", "--from", "publish")
    assert "careful: copies is not what the earlier run had" in again.stderr
    assert json.loads(again.stdout) == {"tag": "v1", "number": 6, "built": "v1"}
    assert lines("built.txt") == ["built"]


def test_from_a_step_on_arguments_that_the_file_does_not_take_any_more_are_left_out() -> None:
    run("workflow", "run", "flows.yaml", "release", "tag=v1", "copies=5")
    without = FLOWS.replace("      copies: {type: integer, default: 2}\n", "").replace("{{ input.copies }}", "1")
    write_flows(without)
    done = run("workflow", "run", "flows.yaml", "release", "--from", "publish")
    assert json.loads(done.stdout) == {"tag": "v1", "copies": "1", "built": "v1"}


def test_from_a_step_on_of_a_task_that_is_named() -> None:
    run("workflow", "run", "flows.yaml", "release", "tag=v1")
    run("workflow", "run", "flows.yaml", "release", "tag=v2")
    tasks = json.loads(run("tasks", "ls", "--json").stdout)
    first = min(tasks, key=lambda task: task["created_at"])["id"]
    done = run("workflow", "run", "flows.yaml", "release", "--from", "publish", "--task", first[:20])
    assert json.loads(done.stdout)["built"] == "v1"
    other = run("workflow", "run", "flows.yaml", "fail", "--from", "second", "--task", first)
    assert other.returncode == 2
    assert "is of release, and not of fail" in other.stderr


def test_from_a_step_on_there_must_have_been_a_run() -> None:
    run("workflow", "run", "flows.yaml", "confirm")
    done = run("workflow", "run", "flows.yaml", "release", "--from", "publish")
    assert done.returncode == 2
    assert "/flows' of this store, which is that of the file's name: name its task with --task" in done.stderr


def test_a_workflow_with_states_has_no_steps_to_begin_with() -> None:
    states = "{a: {action: {set: 1}, transitions: {go: {to: b, on: 'true'}}}, b: {kind: success}}"
    write_flows(f"raincheck: 1\nworkflows:\n  it:\n    states: {states}\n")
    assert run("workflow", "run", "flows.yaml", "it", "--verbose").returncode == 0
    done = run("workflow", "run", "flows.yaml", "it", "--from", "a")
    assert done.returncode == 2
    assert "it has states and no steps: --from is for pipelines" in done.stderr


def test_what_has_no_result_from_before_is_seen_to_anew() -> None:
    run("workflow", "run", "flows.yaml", "fail")
    Path("mended").touch()
    done = run("workflow", "run", "flows.yaml", "fail", "--from", "last")
    assert done.returncode == 0
    assert "of what is before last, it has no result of second: that is seen to anew" in done.stderr
    assert sorted(lines("fail.txt")) == ["beside", "first", "second", "second"]


def test_where_no_program_of_that_name_is_found_this_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run("workflow", "run", "flows.yaml", "confirm")
    (slip,) = held()
    assert slip["server"].startswith(f"cd {Path.cwd()} && {sys.executable} -c ")
    assert run("get", slip["task_id"]).returncode == 3
