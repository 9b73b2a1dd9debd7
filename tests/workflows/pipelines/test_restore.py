"""Which results of an earlier run of a pipeline can be reused, by its checkpoints."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from raincheck.core.values import Json
from raincheck.workflows.load import load_workflows
from raincheck.workflows.pipelines.pipeline import Pipeline
from raincheck.workflows.pipelines.step import find_restorable

FLOW = """
raincheck: 1
workflows:
  it:
    steps:
      - {id: load, set: 1}
      - {id: each, for_each: "[1, 2]", set: 1}
      - {id: poll, until: "result == 2", max_rounds: 3, set: 1}
      - {id: beside, needs: [], set: 1}
      - {id: join, needs: [poll, beside], set: 1}
      - {id: last, set: 1}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    file = tmp_path / "it.yaml"
    file.write_text(FLOW)
    return load_workflows(file).pipelines["it"]


def ok(result: Json) -> Mapping[str, Json]:
    return {"ok": result}


ERROR: Mapping[str, Json] = {"error": {"kind": "exit", "message": "exit code 1"}}

DONE: Mapping[str, Json] = {
    "load": ok(1),
    "each[0]": ok("a"),
    "each[1]": ERROR,
    "each[1] try 2": ok("b"),
    "poll": ok(0),
    "poll round 2": ERROR,
    "poll round 2 try 2": ok(2),
    "beside": ok("c"),
    "join": ok("d"),
    "last": ok("e"),
    "sleep": 5,
}


@pytest.mark.parametrize(
    ("step", "restored"),
    [
        ("load", {"beside": "c"}),
        ("poll", {"load": 1, "each": ["a", "b"], "beside": "c"}),
        ("join", {"load": 1, "each": ["a", "b"], "poll": 2, "beside": "c"}),
        ("beside", {"load": 1, "each": ["a", "b"], "poll": 2}),
        ("last", {"load": 1, "each": ["a", "b"], "poll": 2, "beside": "c", "join": "d"}),
    ],
)
def test_results_of_steps_that_do_not_follow_the_step_are_reused(pipeline: Pipeline, step: str, restored: Json) -> None:
    assert find_restorable(pipeline, step, DONE) == restored


def test_failed_steps_are_not_reused(pipeline: Pipeline) -> None:
    assert find_restorable(pipeline, "last", {"load": ERROR, "beside": ok(1)}) == {"beside": 1}


def test_undone_steps_are_not_reused(pipeline: Pipeline) -> None:
    text = FLOW.replace("{id: load, set: 1}", "{id: load, set: 1, on_error: {compensate: undo}}")
    pipeline.permissions.file.write_text(text + "      - {id: undo, set: 1}\n")
    undoing = load_workflows(pipeline.permissions.file).pipelines["it"]
    done = {"load": ok(1), "beside": ok(2), "join": ERROR}
    assert find_restorable(undoing, "join", done) == {"load": 1, "beside": 2}
    assert find_restorable(undoing, "join", {**done, "undo": ok(1)}) == {"beside": 2}


def test_items_and_rounds_that_may_be_incomplete_are_not_reused(pipeline: Pipeline) -> None:
    started = {"load": ok(1), "each[0]": ok("a")}
    assert find_restorable(pipeline, "join", started) == {"load": 1}
    polled = {**started, "each[1]": ok("b"), "poll": ok(0)}
    assert find_restorable(pipeline, "join", polled) == {"load": 1, "each": ["a", "b"]}


def test_steps_that_the_file_no_longer_has_are_left_out(pipeline: Pipeline) -> None:
    assert find_restorable(pipeline, "join", {"gone": ok(1), "load": ok(1)}) == {"load": 1}
