"""Processes from a shell: where they are, what leads on from there, and taking them there."""

from pathlib import Path

import pytest

from raincheck.core.commands import Cancel, Park
from raincheck.core.payload import encode
from raincheck.core.records import Task, TaskId, Tool
from raincheck.testing import StoreHarness
from raincheck.testing.harness import NAMESPACE
from raincheck.workflows import Machine, load_workflows
from tests.support.cli.operator import in_store, lines, run, told
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


def begin(*, is_kept: bool = True) -> Task:
    """A process in its first state."""
    machine = load_workflows(write_flows(REVIEW)).definitions["review"]
    assert isinstance(machine, Machine)
    assert machine.definition is not None
    tool, definition = Tool("review", machine.version), machine.definition

    async def create(scene: StoreHarness) -> Task:
        await scene.store.save_definitions(NAMESPACE, {tool: definition} if is_kept else {})
        return await scene.create(tool=tool, state="draft", subject="paper 7", arguments=encode({}))

    return in_store(create)


def test_it_is_said_where_a_process_is_and_what_leads_on_and_why_not() -> None:
    task = begin()
    first, *ways = lines("workflow", "state", task.id)
    assert first.endswith("(review) is in draft, and working")
    assert ways[1] == "reject leads to refused, with a reason"
    assert ways[0].startswith("submit leads to reviewed (closed: its guard failed:")
    facts = told("workflow", "state", task.id)
    assert (facts["state"], facts["subject"]) == ("draft", "paper 7")
    assert [one["action"] for one in facts["transitions"]] == ["submit", "reject"]
    assert facts["data"] == {}


def test_the_data_of_a_process_is_shown() -> None:
    task = begin()
    run("workflow", "take", task.id, "submit", "pages:=3")
    assert told("workflow", "state", task.id)["data"] == {"pages": 3}
    assert lines("workflow", "state", task.id)[1] == 'its data: {"pages": 3}'


def test_a_process_whose_definition_nobody_kept_is_shown_without_its_transitions() -> None:
    task = begin(is_kept=False)
    first, second = lines("workflow", "state", task.id)
    assert first.endswith("(review) is in draft, and working")
    assert second.startswith("its transitions are known only to the program")
    facts = told("workflow", "state", task.id)
    assert (facts["state"], facts["transitions"]) == ("draft", None)


@pytest.mark.parametrize("word", ["pages", "pages:=none", "@none.json"])
def test_what_can_not_be_read_is_refused_in_a_line_before_anything_is_done(word: str) -> None:
    task = begin()
    done = run("workflow", "take", task.id, "submit", word)
    assert (done.exit_code, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert done.stderr.startswith("raincheck: ")


def test_a_process_that_waits_is_shown_with_how_to_see_its_transitions() -> None:
    task = begin()

    async def park(scene: StoreHarness) -> Task:
        await scene.claim(tools=frozenset({task.tool}))
        return await scene.apply(task, Park(1, seen_signals=0))

    in_store(park)
    state = f"raincheck workflow state --store tasks.db {task.id}"
    assert lines("tasks", "show", task.id)[-1] == f"-> it waits for a transition: {state} shows which there are"


def test_an_operator_stops_a_process_whatever_its_workflow_says_and_its_state_stays() -> None:
    task = begin()
    assert run("tasks", "cancel", task.id).exit_code == 0
    facts = told("workflow", "state", task.id)
    assert (facts["status"], facts["state"]) == ("cancelled", "draft")


def test_a_process_is_taken_along_a_transition_by_the_definition_that_it_began_with() -> None:
    task = begin()
    Path("flows.yaml").unlink()
    assert lines("workflow", "take", task.id[:30], "submit", "pages:=3")[0].endswith("(review) is in reviewed now")
    assert told("workflow", "take", task.id, "publish")["state"] == "published"
    history = told("tasks", "show", task.id)["history"]
    moves = [(one["event"], one["actor"], one["note"]) for one in history if one["event"] == "transition"]
    assert moves == [
        ("transition", "operator", "submit: draft -> reviewed"),
        ("transition", "operator", "publish: reviewed -> published"),
    ]


def test_what_the_workflow_does_not_allow_is_refused_with_the_reason() -> None:
    task = begin()
    for words, why in (
        (["submit"], "its guard failed"),
        (["submit", "pages:=0"], "its guard says no: data.pages > 0"),
        (["reject"], "it requires a reason"),
        (["publish"], "leads out of this state: what does is 'submit', 'reject'"),
    ):
        done = run("workflow", "take", task.id, *words)
        assert done.exit_code == 1
        assert why in " ".join(done.stderr.split())
    done = run("workflow", "take", task.id, "reject", "--reason", "too short")
    assert done.exit_code == 0, done.output


def test_what_is_no_process_or_has_ended_or_is_not_kept_is_refused_with_what_to_do() -> None:
    plain = in_store(lambda scene: scene.create(id=TaskId("plain")))
    assert "is no process" in run("workflow", "state", plain.id).stderr
    task = begin(is_kept=False)
    assert "engine.instances.transition" in " ".join(run("workflow", "take", task.id, "submit").stderr.split())
    in_store(lambda scene: scene.apply(task, Cancel("me")))
    assert "has ended in 'draft'" in " ".join(run("workflow", "take", task.id, "submit").stderr.split())
    assert run("workflow", "state", "nothing").exit_code == 1


def test_processes_are_listed_by_state_and_by_subject() -> None:
    task = begin()
    in_store(lambda scene: scene.create(id=TaskId("plain")))
    assert [one["id"] for one in told("tasks", "ls", "--state", "draft")] == [task.id]
    assert [one["id"] for one in told("tasks", "ls", "--subject", "paper 7")] == [task.id]
    assert told("tasks", "ls", "--state", "published") == []
    assert any(line.startswith("state draft, since") for line in lines("tasks", "show", task.id))
