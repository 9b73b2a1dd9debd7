"""Graphs of pipelines and state machines have every step and state, its action and conditions, and every edge."""

from pathlib import Path

import pytest

from raincheck.workflows.graph import as_mermaid, as_svg, graph_of
from raincheck.workflows.graph.model import Edge, Graph, Node, NodeKind
from raincheck.workflows.load import load_workflows
from raincheck.workflows.machines.machine import Machine, State, Timeout, Transition

PIPELINE = """
raincheck: 1
allow: {hosts: [api.example.com]}
servers:
  files: {command: [sh, server.sh]}
workflows:
  release:
    description: Release it.
    input: {tag: {enum: [v1, v2]}}
    steps:
      - {id: build, run: [make, "{{ input.tag }}"], retry: {attempts: 3}, timeout: 5m}
      - {id: lint, needs: [], run: {shell: "ruff check ."}, on_error: continue}
      - id: files
        needs: [build, lint]
        for_each: "[1, 2]"
        call: {server: files, tool: put}
        on_error: {compensate: undo}
      - {id: undo, http: {method: DELETE, url: "https://api.example.com/it"}}
      - {id: sure, if: "input.tag == 'v1'", ask: {message: "Publish?", schema: {ok: {type: boolean}}}}
      - {id: poll, until: "result.a == 1", max_rounds: 3, set: {a: 1, b: 2}}
      - {id: think, sample: {prompt: "Sum it up."}}
      - {id: rest, sleep: 5m}
      - {id: other, workflow: sub}
      - {id: each, for_each: [1, 2, 3], set: "{{ item }}"}
  sub:
    steps: [{id: only, set: 1}]
"""


@pytest.fixture
def release(tmp_path: Path) -> Graph:
    file = tmp_path / "flows.yaml"
    file.write_text(PIPELINE)
    return graph_of(load_workflows(file).definitions["release"])


def test_every_step_is_drawn_with_its_action_and_conditions(release: Graph) -> None:
    assert (release.name, release.description) == ("release", "Release it.")
    assert release.nodes == (
        Node("build", NodeKind.WORK, ("run: make {{ input.tag }}", "up to 3 tries", "within 5m"), is_start=True),
        Node("lint", NodeKind.WORK, ("run: ruff check .", "continues if it fails"), is_start=True),
        Node("files", NodeKind.REACH, ("call: put of files", "for each of [1, 2]")),
        Node("undo", NodeKind.REACH, ("http: DELETE https://api.example.com/it",)),
        Node("sure", NodeKind.ASK, ("ask: Publish?", "if input.tag == 'v1'")),
        Node("poll", NodeKind.WORK, ("set: a, b", "until result.a == 1, at most 3 rounds")),
        Node("think", NodeKind.ASK, ("sample: Sum it up.",)),
        Node("rest", NodeKind.WAIT, ("sleep: 5m",)),
        Node("other", NodeKind.REACH, ("workflow: sub",)),
        Node("each", NodeKind.WORK, ("set: {{ item }}", "for each of 3 items")),
    )


def test_needs_and_compensations_are_drawn_as_different_edges(release: Graph) -> None:
    assert set(release.edges) == {
        Edge("build", "files"),
        Edge("lint", "files"),
        Edge("files", "sure"),
        Edge("sure", "poll"),
        Edge("poll", "think"),
        Edge("think", "rest"),
        Edge("rest", "other"),
        Edge("other", "each"),
        Edge("files", "undo", "to undo it", is_exception=True),
    }
    assert as_svg(release).count('class="node"') == 10


def nothing(*_: object) -> None: ...


REVIEW = Machine(
    "review",
    states=[
        State("draft", transitions=[Transition("submit", to="review", guard="has_text")]),
        State(
            "review",
            timeout=Timeout(3_600, "expire"),
            action=nothing,
            label="ask the user",
            on_error="give_up",
            transitions=[
                Transition("approve", to="done", guard=lambda _: True, label="data.votes > 2"),
                Transition("merge", to="done", guard=lambda _: True),
                Transition("pass", to="done", on=nothing, label="result.ok"),
                Transition("reject", to="draft", requires_reason=True),
                Transition("expire", to="expired"),
                Transition("give_up", to="expired"),
                Transition("withdraw", to="withdrawn"),
            ],
        ),
        State("done", kind="success"),
        State("expired", kind="failure"),
        State("withdrawn", kind="cancel"),
    ],
    guards={"has_text": lambda snapshot: bool(snapshot.data)},
)


def test_every_state_is_drawn_with_its_action() -> None:
    assert graph_of(REVIEW).nodes == (
        Node("draft", NodeKind.STATE, is_start=True),
        Node("review", NodeKind.STATE, ("ask the user", "after 1h: expire")),
        Node("done", NodeKind.SUCCESS, ("success",)),
        Node("expired", NodeKind.FAILURE, ("failure",)),
        Node("withdrawn", NodeKind.CANCEL, ("cancel",)),
    )


def test_every_transition_is_drawn_with_its_conditions() -> None:
    assert graph_of(REVIEW).edges == (
        Edge("draft", "review", "submit [has_text]"),
        Edge("review", "done", "approve [data.votes > 2]"),
        Edge("review", "done", "merge [guarded]"),
        Edge("review", "done", "pass if result.ok"),
        Edge("review", "draft", "reject (with a reason)"),
        Edge("review", "expired", "expire", is_exception=True),
        Edge("review", "expired", "give_up", is_exception=True),
        Edge("review", "withdrawn", "withdraw"),
    )
    text = as_mermaid(graph_of(REVIEW))
    assert '|"approve [data.votes #gt; 2]"|' in text
    assert text.count("-.->") == 2
