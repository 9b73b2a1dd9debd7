"""Graphs as Mermaid and SVG are complete, without overlaps, and escape their text."""

import re
from collections.abc import Iterable
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raincheck.workflows.graph.layout import Layout, NodePosition, lay_out
from raincheck.workflows.graph.mermaid import as_mermaid
from raincheck.workflows.graph.model import Edge, Graph, Node, NodeKind, clip, format_duration
from raincheck.workflows.graph.svg import as_svg

SVG = "{http://www.w3.org/2000/svg}"


def graph(*edges: tuple[str, ...], start: str = "a", more: Iterable[str] = ()) -> Graph:
    names = dict.fromkeys([start, *(name for edge in edges for name in edge[:2]), *more])
    nodes = tuple(Node(name, NodeKind.STATE, is_start=name == start) for name in names)
    return Graph("drawn", "", nodes, tuple(Edge(*edge[:2], label="".join(edge[2:])) for edge in edges))


DIAMOND = graph(("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d"))
CIRCLE = graph(("a", "b", "go"), ("b", "c", "on"), ("c", "a", "again"), ("b", "b", "stay"), ("b", "a", "back"))


def laid_out(drawn: Graph) -> Layout:
    return lay_out(
        drawn, {node.name: (80.0, 30.0) for node in drawn.nodes}, {e: (60.0, 17.0) for e in drawn.edges if e.label}
    )


def overlaps(one: NodePosition, other: NodePosition) -> bool:
    beside = abs(one.x - other.x) >= (one.width + other.width) / 2
    above = one.y + one.height <= other.y or other.y + other.height <= one.y
    return not beside and not above


def test_a_step_is_below_its_predecessors() -> None:
    layout = laid_out(DIAMOND)
    tops = {name: place.y for name, place in layout.boxes.items()}
    assert tops["a"] < tops["b"] == tops["c"] < tops["d"]


def test_an_arrow_that_passes_a_layer_passes_beside_its_boxes() -> None:
    layout = laid_out(DIAMOND)
    (straight,) = [route for route in layout.routes if (route.edge.source, route.edge.target) == ("a", "d")]
    beside = [position for position in straight.positions[1:-1] if position.layer == layout.boxes["b"].layer]
    assert len(beside) == 1
    assert not any(overlaps(beside[0], layout.boxes[name]) for name in ("b", "c"))


def test_a_cycle_is_drawn_with_one_arrow_up() -> None:
    layout = laid_out(CIRCLE)
    tops = {name: place.y for name, place in layout.boxes.items()}
    assert tops["a"] < tops["b"] < tops["c"]
    ways = {
        (route.edge.source, route.edge.target): [position.y for position in route.positions] for route in layout.routes
    }
    assert ways["c", "a"] == sorted(ways["c", "a"], reverse=True)
    assert ways["a", "b"] == sorted(ways["a", "b"])


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh"), st.sampled_from(["", "x", "y"])),
        max_size=20,
        unique=True,
    )
)
@settings(max_examples=60, deadline=None)
def test_no_boxes_or_labels_overlap(edges: list[tuple[str, str, str]]) -> None:
    drawn = graph(*edges)
    layout = laid_out(drawn)
    labels = [route.label for route in layout.routes if route.label is not None]
    assert len(labels) == sum(bool(edge.label) and edge.source != edge.target for edge in drawn.edges)
    for one, other in combinations([*layout.boxes.values(), *labels], 2):
        assert not overlaps(one, other)
    for place in (*layout.boxes.values(), *labels):
        assert place.x - place.width / 2 >= 0
        assert place.x + place.width / 2 <= layout.width + 0.01
        assert place.y >= 0
        assert place.y + place.height <= layout.height + 0.01
    as_svg(drawn)


def test_the_picture_is_complete_and_self_contained() -> None:
    picture = as_svg(CIRCLE)
    root = ElementTree.fromstring(picture)  # noqa: S314 - our own
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert sorted(texts[1:]) == sorted(["a", "b", "c", "go", "on", "again", "stay", "back"])
    assert len([path for path in root.iter(f"{SVG}path") if "arrow" in path.get("class", "")]) == 5
    without_name = picture.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|<script|@import|href", without_name)
    assert "prefers-color-scheme: dark" in picture


def test_edges_from_a_box_to_itself_are_one_arrow_beside_it() -> None:
    drawn = graph(("a", "a", "edit"), ("a", "a", "save"), ("b", "c"), more="b")
    root = ElementTree.fromstring(as_svg(drawn))  # noqa: S314 - our own
    (said,) = [text for text in root.iter(f"{SVG}text") if text.text == "edit, save"]
    boxes = [float(box.get("x", 0)) for box in root.iter(f"{SVG}rect")]
    assert max(boxes) > float(said.get("x", 0)) + 60


def test_the_same_graph_is_drawn_the_same_way() -> None:
    assert as_svg(CIRCLE) == as_svg(CIRCLE)


HOSTILE = '<script>alert("1")</script>&amp; \x1b[2J \x00 ]] end # ` \\ {{ x }}'


@pytest.mark.parametrize("look", NodeKind)
def test_text_from_a_file_is_escaped_in_the_picture(look: NodeKind) -> None:
    drawn = Graph(
        HOSTILE,
        HOSTILE,
        (Node("a", look, (HOSTILE,)), Node("end", look)),
        (Edge("a", "end", HOSTILE, is_exception=True),),
    )
    root = ElementTree.fromstring(as_svg(drawn))  # noqa: S314 - our own
    assert not list(root.iter(f"{SVG}script"))
    text = as_mermaid(drawn)
    assert "<script" not in text
    assert "\x1b" not in text
    assert all(line.count('"') in (0, 2) for line in text.splitlines())
    assert " end" not in text.replace("#35;", "").split("classDef")[0].replace('"', " ").split("n2")[-1]


def test_mermaid_has_every_box_and_every_arrow() -> None:
    nodes = (Node("build", NodeKind.WORK, ("run: make",), is_start=True), Node("done", NodeKind.SUCCESS))
    text = as_mermaid(Graph("g", "", nodes, (Edge("build", "done", "ok > 1"), Edge("build", "done", "late", True))))
    assert text.splitlines() == [
        "flowchart TD",
        '    n1["build<br/>run: make"]',
        '    n2((("done")))',
        "    start1(( )) --> n1",
        '    n1 -->|"ok #gt; 1"| n2',
        '    n1 -.->|"late"| n2',
        "    classDef success fill:#d4edda,stroke:#2e7d32,color:#222",
        "    class n2 success",
    ]


@pytest.mark.parametrize(("seconds", "written"), [(0, "0s"), (90, "90s"), (300, "5m"), (7_200, "2h"), (86_400, "1d")])
def test_durations_are_written_as_in_files(seconds: float, written: str) -> None:
    assert format_duration(seconds) == written


def test_long_text_is_shortened() -> None:
    assert clip("a\n b") == "a b"
    assert clip("x" * 50) == f"{'x' * 39}…"
