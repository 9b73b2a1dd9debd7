"""Tests for `raincheck workflow state` and `take` on workflow instances."""

from pathlib import Path

import pytest

from raincheck.core.commands import Cancel, Park
from raincheck.core.records import Task, TaskId, Tool
from raincheck.core.values import encode
from raincheck.testing import StoreHarness
from raincheck.testing.harness import NAMESPACE
from raincheck.workflows import Machine, load_workflows
from tests.support.cli.operator import in_store, lines, run, run_json
from tests.support.cli.workflow_server import write_flows

REVIEW = """
raincheck: 1
workflows:
  review:
    states:
      draft:
        transitions:
          submit: {to: reviewed, guard: data.pages > 0}
          reject: {to: refused, requires_reason: true}
      reviewed:
        transitions:
          publish: {to: published}
      published: {kind: success}
      refused: {kind: failure}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def start_instance(*, is_kept: bool = True) -> Task:
    """A process in its first state."""
    machine = load_workflows(write_flows(REVIEW)).definitions["review"]
    assert isinstance(machine, Machine)
    assert machine.definition is not None
    tool, definition = Tool("review", machine.version), machine.definition

    async def create(harness: StoreHarness) -> Task:
        await harness.store.save_definitions(NAMESPACE, {tool: definition} if is_kept else {})
        return await harness.create(tool=tool, state="draft", subject="paper 7", arguments=encode({}))

    return in_store(create)


def test_state_prints_the_state_and_its_transitions() -> None:
    task = start_instance()
    first, *ways = lines("workflow", "state", task.id)
    assert first.endswith("(review) is in draft, and working")
    assert ways[1] == "reject leads to refused, with a reason"
    assert ways[0].startswith("submit leads to reviewed (closed: its guard failed:")
    facts = run_json("workflow", "state", task.id)
    assert (facts["state"], facts["subject"]) == ("draft", "paper 7")
    assert [one["action"] for one in facts["transitions"]] == ["submit", "reject"]
    assert facts["data"] == {}


def test_state_prints_the_data_of_an_instance() -> None:
    task = start_instance()
    run("workflow", "take", task.id, "submit", "pages:=3")
    assert run_json("workflow", "state", task.id)["data"] == {"pages": 3}
    assert lines("workflow", "state", task.id)[1] == 'its data: {"pages": 3}'


def test_an_instance_without_a_stored_definition_is_shown_without_transitions() -> None:
    task = start_instance(is_kept=False)
    first, second = lines("workflow", "state", task.id)
    assert first.endswith("(review) is in draft, and working")
    assert second.startswith("its transitions are known only to the program")
    facts = run_json("workflow", "state", task.id)
    assert (facts["state"], facts["transitions"]) == ("draft", None)


@pytest.mark.parametrize("word", ["pages", "pages:=none", "@none.json"])
def test_invalid_data_is_refused_before_the_transition(word: str) -> None:
    task = start_instance()
    done = run("workflow", "take", task.id, "submit", word)
    assert (done.exit_code, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert done.stderr.startswith("raincheck: ")


def test_show_of_a_waiting_instance_names_the_state_command() -> None:
    task = start_instance()

    async def park(harness: StoreHarness) -> Task:
        await harness.claim(tools=frozenset({task.tool}))
        return await harness.apply(task, Park(1, seen_signals=0))

    in_store(park)
    state = f"raincheck workflow state --store tasks.db {task.id}"
    assert lines("tasks", "show", task.id)[-1] == f"-> it waits for a transition: {state} shows its transitions"


def test_an_operator_can_always_cancel_an_instance_and_its_state_stays() -> None:
    task = start_instance()
    assert run("tasks", "cancel", task.id).exit_code == 0
    facts = run_json("workflow", "state", task.id)
    assert (facts["status"], facts["state"]) == ("cancelled", "draft")


def test_take_uses_the_definition_that_the_instance_started_with() -> None:
    task = start_instance()
    Path("flows.yaml").unlink()
    assert lines("workflow", "take", task.id[:30], "submit", "pages:=3")[0].endswith("(review) is now in reviewed")
    assert run_json("workflow", "take", task.id, "publish")["state"] == "published"
    history = run_json("tasks", "show", task.id)["history"]
    moves = [(one["event"], one["actor"], one["note"]) for one in history if one["event"] == "transition"]
    assert moves == [
        ("transition", "operator", "submit: draft -> reviewed"),
        ("transition", "operator", "publish: reviewed -> published"),
    ]


def test_a_transition_that_is_not_allowed_is_refused_with_the_reason() -> None:
    task = start_instance()
    for words, why in (
        (["submit"], "its guard failed"),
        (["submit", "pages:=0"], "its guard is false: data.pages > 0"),
        (["reject"], "it requires a reason"),
        (["publish"], "this state has no transition of that name: the transitions are 'submit', 'reject'"),
    ):
        done = run("workflow", "take", task.id, *words)
        assert done.exit_code == 1
        assert why in " ".join(done.stderr.split())
    done = run("workflow", "take", task.id, "reject", "--reason", "too short")
    assert done.exit_code == 0, done.output


def test_take_refuses_tasks_that_are_not_live_instances() -> None:
    plain = in_store(lambda harness: harness.create(id=TaskId("plain")))
    assert "is not a workflow instance" in run("workflow", "state", plain.id).stderr
    task = start_instance(is_kept=False)
    assert "engine.instances.transition" in " ".join(run("workflow", "take", task.id, "submit").stderr.split())
    in_store(lambda harness: harness.apply(task, Cancel("me")))
    assert "has ended in 'draft'" in " ".join(run("workflow", "take", task.id, "submit").stderr.split())
    assert run("workflow", "state", "nothing").exit_code == 1


def test_instances_are_listed_by_state_and_by_subject() -> None:
    task = start_instance()
    in_store(lambda harness: harness.create(id=TaskId("plain")))
    assert [one["id"] for one in run_json("tasks", "ls", "--state", "draft")] == [task.id]
    assert [one["id"] for one in run_json("tasks", "ls", "--subject", "paper 7")] == [task.id]
    assert run_json("tasks", "ls", "--state", "published") == []
    assert any(line.startswith("state draft, since") for line in lines("tasks", "show", task.id))
