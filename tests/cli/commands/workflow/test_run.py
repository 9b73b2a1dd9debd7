"""Tests for `raincheck workflow run`: questions, detaching, and starting at a later step."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.cli.terminal import PROGRAM, at_terminal, list_saved_calls, run
from tests.support.cli.workflow_server import FLOWS, write_flows

pytestmark = [pytest.mark.usefixtures("flows")]


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


def test_run_prints_the_result_and_the_progress() -> None:
    done = run("workflow", "run", "flows.yaml", "release", "tag=v1", "copies=3")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"tag": "v1", "copies": 3, "built": "v1"}
    assert "raincheck: release is task " in done.stderr
    assert "raincheck: release: completed" in done.stderr
    assert list_saved_calls() == []


def test_run_json_prints_a_tool_result() -> None:
    done = run("workflow", "run", "flows.yaml", "release", "tag=v1", "--json")
    assert json.loads(done.stdout)["structuredContent"] == {"tag": "v1", "copies": 2, "built": "v1"}


def test_a_failed_workflow_exits_with_one_and_the_reason() -> None:
    done = run("workflow", "run", "flows.yaml", "fail")
    assert (done.returncode, done.stdout) == (1, "")
    assert "step 'second' failed" in done.stderr


def test_exceptions_of_functions_are_shown_to_the_user() -> None:
    Path("functions.py").write_text("def break_it():\n    raise ValueError('a secret')\n")
    Path("raising.yaml").write_text("raincheck: 1\nworkflows: {it: {steps: [{id: a, python: 'functions:break_it'}]}}\n")
    done = run("workflow", "run", "raising.yaml", "it")
    assert done.returncode == 1
    assert "ValueError: a secret" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nope"], "flows.yaml has no workflow 'nope': its workflows are confirm, fail, hold, release"),
        (["release"], "release can't be run with these values: 'tag' is missing: tag=… (string), What to release."),
        (["release", "tag=1"], "'1' does not match '^v'"),
        (["release", "tag=v1", "copies=many"], "'many' is not of type 'integer'"),
        (["release", "tag=v1", "restored:={}"], "unknown argument 'restored'"),
        (["release", "tag=v1", "--task", "1"], "--task requires --from: name the step to start at"),
        (["release", "--from", "nope"], "release has no step 'nope': its steps are build, publish"),
        (["release", "--from", "publish"], "there is no file"),
    ],
)
def test_invalid_runs_are_refused_before_they_start(words: list[str], why: str) -> None:
    done = run("workflow", "run", "flows.yaml", *words, "--store", "tasks.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert not Path("built.txt").exists()


@pytest.mark.parametrize(
    ("store", "why"),
    [
        ("memory:", "its tasks could not be resumed: name a file with --store"),
        ("nowhere/tasks.db", "there is no folder"),
    ],
)
def test_an_unusable_store_is_reported(store: str, why: str) -> None:
    done = run("workflow", "run", "flows.yaml", "release", "tag=v1", "--store", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_questions_of_a_workflow_are_asked_at_the_terminal() -> None:
    with at_terminal("workflow", "run", "flows.yaml", "confirm") as screen:
        screen.expect("confirm asks: Really?").expect("sure (y or n):").type("y")
        screen.expect('"sure": true')
        assert screen.end() == 0


def test_without_a_terminal_run_prints_how_to_answer_and_can_be_resumed() -> None:
    done = run("workflow", "run", "flows.yaml", "confirm", "--json")
    assert done.returncode == 3
    asked = json.loads(done.stdout)
    assert asked["questions"][0]["message"] == "Really?"
    assert f"answer with: raincheck answer {asked['task_id'][:20]} name=value" in done.stderr
    assert run("answer", asked["task_id"], "sure=no").returncode == 0
    waited = run("wait", asked["task_id"])
    assert (waited.returncode, json.loads(waited.stdout)) == (0, {"sure": False})
    assert list_saved_calls() == []


def test_a_waiting_run_continues_with_its_definition_after_the_file_changed() -> None:
    asked = json.loads(run("workflow", "run", "flows.yaml", "confirm", "--json").stdout)
    write_flows(FLOWS.replace('{sure: "{{ steps.ask.result.sure }}"}', "changed"))
    assert run("answer", asked["task_id"], "sure=no").returncode == 0
    assert json.loads(run("wait", asked["task_id"]).stdout) == {"sure": False}


def test_ctrl_c_detaches_and_the_run_can_be_resumed() -> None:
    with at_terminal("workflow", "run", "flows.yaml", "hold") as screen:
        screen.expect("hold: wait").press("c")
        screen.expect("[d]etach").type("d")
        screen.expect("is stored as task").expect("Both start the server again.")
        assert screen.end() == 4
    Path("go").touch()
    (task_ref,) = list_saved_calls()
    assert task_ref["server"].endswith("raincheck serve flows.yaml")
    assert run("wait", task_ref["task_id"]).stdout == "old\n"


def test_the_resume_command_uses_the_named_store() -> None:
    assert run("workflow", "run", "flows.yaml", "confirm", "--store", "mine.db").returncode == 3
    (task_ref,) = list_saved_calls()
    assert task_ref["server"].endswith("raincheck serve flows.yaml --store mine.db")
    assert Path("mine.db").exists()


def test_from_skips_the_previous_steps() -> None:
    assert run("workflow", "run", "flows.yaml", "fail").returncode == 1
    Path("mended").touch()
    done = run("workflow", "run", "flows.yaml", "fail", "--from", "second")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"first": "completed"})
    assert "using the results of 2 steps from task" in done.stderr
    assert sorted(lines("fail.txt")) == ["beside", "first", "second", "second"]


def test_from_uses_the_fixed_file_and_the_earlier_arguments() -> None:
    run("workflow", "run", "flows.yaml", "release", "tag=v1", "copies=5")
    write_flows(FLOWS.replace('copies: "{{ input.copies }}"', 'number: "{{ input.copies }}"'))
    done = run("workflow", "run", "flows.yaml", "release", "--from", "publish")
    assert json.loads(done.stdout) == {"tag": "v1", "number": 5, "built": "v1"}
    assert "using the result of 1 step from task" in done.stderr
    assert "warning:" not in done.stderr
    again = run("workflow", "run", "flows.yaml", "release", "copies=6", "--from", "publish")
    assert "warning: the earlier run, whose results are used, had different values of copies" in again.stderr
    assert json.loads(again.stdout) == {"tag": "v1", "number": 6, "built": "v1"}
    assert lines("built.txt") == ["built"]


def test_from_drops_arguments_that_the_workflow_no_longer_accepts() -> None:
    run("workflow", "run", "flows.yaml", "release", "tag=v1", "copies=5")
    without = FLOWS.replace("      copies: {type: integer, default: 2}\n", "").replace("{{ input.copies }}", "1")
    write_flows(without)
    done = run("workflow", "run", "flows.yaml", "release", "--from", "publish")
    assert json.loads(done.stdout) == {"tag": "v1", "copies": "1", "built": "v1"}


def test_from_uses_the_task_that_is_named() -> None:
    run("workflow", "run", "flows.yaml", "release", "tag=v1")
    run("workflow", "run", "flows.yaml", "release", "tag=v2")
    tasks = json.loads(run("tasks", "ls", "--json").stdout)
    first = min(tasks, key=lambda task: task["created_at"])["id"]
    done = run("workflow", "run", "flows.yaml", "release", "--from", "publish", "--task", first[:20])
    assert json.loads(done.stdout)["built"] == "v1"
    other = run("workflow", "run", "flows.yaml", "fail", "--from", "second", "--task", first)
    assert other.returncode == 2
    assert "is a run of release, not of fail" in other.stderr


def test_from_requires_an_earlier_run() -> None:
    run("workflow", "run", "flows.yaml", "confirm")
    done = run("workflow", "run", "flows.yaml", "release", "--from", "publish")
    assert done.returncode == 2
    assert "/flows' (from the file's name) of this store: name a task with --task" in done.stderr


def test_from_is_refused_for_a_workflow_with_states() -> None:
    states = "{a: {action: {set: 1}, transitions: {go: {to: b, on: 'true'}}}, b: {kind: success}}"
    write_flows(f"raincheck: 1\nworkflows:\n  it:\n    states: {states}\n")
    assert run("workflow", "run", "flows.yaml", "it", "--verbose").returncode == 0
    done = run("workflow", "run", "flows.yaml", "it", "--from", "a")
    assert done.returncode == 2
    assert "it has states, not steps: --from is only for pipelines" in done.stderr


def test_steps_without_an_earlier_result_run_again() -> None:
    run("workflow", "run", "flows.yaml", "fail")
    Path("mended").touch()
    done = run("workflow", "run", "flows.yaml", "fail", "--from", "last")
    assert done.returncode == 0
    assert "that task has no result of second, before last: running again" in done.stderr
    assert sorted(lines("fail.txt")) == ["beside", "first", "second", "second"]


def test_without_the_program_on_the_path_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run("workflow", "run", "flows.yaml", "confirm")
    (task_ref,) = list_saved_calls()
    assert task_ref["server"].startswith(f"cd {Path.cwd()} && {sys.executable} -c ")
    assert run("get", task_ref["task_id"]).returncode == 3
