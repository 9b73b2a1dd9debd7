"""Layered layout of a graph: from top to bottom, with edges pointing down where possible.

It takes the usual four steps. Edges that close a cycle are reversed for the layout. Each box goes in a layer below all
boxes that lead to it: even layers hold boxes and odd layers hold edge labels, so that no text overlaps anything. An
edge that passes through a layer gets a position in it. Within a layer, items are ordered by the positions of their
neighbours, and then moved towards them as far as there is space.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from raincheck.workflows.graph.model import Edge, Graph

GAP, ROW_GAP, MARGIN = 28.0, 26.0, 24.0
"""The space between items in a layer, between layers, and around the drawing."""

BEND = 10.0
"""The width of an edge that passes through a layer."""

SWEEPS = 8

Size = tuple[float, float]


@dataclass(slots=True, eq=False)
class NodePosition:
    """The position of an item in a layer: a box, an edge label, or an edge that passes through."""

    width: float
    height: float
    layer: int
    x: float = 0.0
    """The horizontal centre."""
    y: float = 0.0
    """The top."""
    above: "list[NodePosition]" = field(default_factory=list["NodePosition"])
    below: "list[NodePosition]" = field(default_factory=list["NodePosition"])


@dataclass(frozen=True, slots=True)
class EdgeRoute:
    """The route of an edge, and the position of its label."""

    edge: Edge
    places: tuple[NodePosition, ...]
    """The positions on the route, from its source to its target."""
    label: NodePosition | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of all boxes and edges."""

    boxes: Mapping[str, NodePosition]
    routes: tuple[EdgeRoute, ...]
    width: float
    height: float


def lay_out(graph: Graph, sizes: Mapping[str, Size], labels: Mapping[Edge, Size]) -> Layout:
    """Position all boxes and edges, by the size of each box and each label. Edges to the same box take none."""
    edges = [edge for edge in dict.fromkeys(graph.edges) if edge.source != edge.target]
    turned = _back_edges(graph, edges)
    layers = _layers_of(graph, edges, turned)
    boxes = {name: NodePosition(*sizes[name], layer) for name, layer in layers.items()}
    rows: list[list[NodePosition]] = [[] for _ in range(max(layers.values(), default=0) + 1)]
    for place in boxes.values():
        rows[place.layer].append(place)
    routes = tuple(_route(edge, edge in turned, boxes, rows, labels.get(edge)) for edge in edges)
    _order(rows)
    width, height = _position(rows)
    return Layout(boxes, routes, width, height)


def _back_edges(graph: Graph, edges: Iterable[Edge]) -> set[Edge]:
    """Return the edges that close a cycle, walking from the start in the order of the file."""
    out: dict[str, list[Edge]] = {node.name: [] for node in graph.nodes}
    for edge in edges:
        out[edge.source].append(edge)
    turned, open_names, done = set[Edge](), set[str](), set[str]()
    for first in sorted(graph.nodes, key=lambda node: not node.is_start):
        way = [(first.name, iter(out[first.name]))] if first.name not in done else []
        open_names.update(name for name, _ in way)
        while way:
            name, left = way[-1]
            edge = next(left, None)
            if edge is None:
                way.pop()
                open_names.discard(name)
                done.add(name)
            elif edge.target in open_names:
                turned.add(edge)
            elif edge.target not in done:
                open_names.add(edge.target)
                way.append((edge.target, iter(out[edge.target])))
    return turned


def _layers_of(graph: Graph, edges: list[Edge], turned: set[Edge]) -> dict[str, int]:
    """Put each box two layers below its lowest predecessor: the layer between them is for edge labels."""
    downward = [(edge.target, edge.source) if edge in turned else (edge.source, edge.target) for edge in edges]
    into: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for source, target in downward:
        into[target].append(source)
    layers: dict[str, int] = {}
    waiting = list(into)
    while waiting:
        ready = [name for name in waiting if all(one in layers for one in into[name])]
        layers |= {name: max((layers[one] + 2 for one in into[name]), default=0) for name in ready}
        waiting = [name for name in waiting if name not in layers]
    return {name: layers[name] for name in into}


def _route(
    edge: Edge, is_turned: bool, boxes: Mapping[str, NodePosition], rows: list[list[NodePosition]], label: Size | None
) -> EdgeRoute:
    upper, lower = (edge.target, edge.source) if is_turned else (edge.source, edge.target)
    way, written = [boxes[upper]], None
    for layer in range(boxes[upper].layer + 1, boxes[lower].layer):
        if label is not None and written is None:
            place = written = NodePosition(*label, layer)
        else:
            place = NodePosition(BEND, 0.0, layer)
        rows[layer].append(place)
        way.append(place)
    way.append(boxes[lower])
    for one, next_one in pairwise(way):
        one.below.append(next_one)
        next_one.above.append(one)
    return EdgeRoute(edge, tuple(reversed(way) if is_turned else way), written)


def _order(rows: list[list[NodePosition]]) -> None:
    """Order each layer so that few edges cross: by the mean position of the items above, then below, repeatedly."""
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            ranks = {one: rank for other in rows for rank, one in enumerate(other)}
            row.sort(key=lambda one: _middle([ranks[near] for near in _near(one, is_down=is_down)], ranks[one]))


def _near(place: NodePosition, *, is_down: bool) -> list[NodePosition]:
    return place.above if is_down else place.below


def _middle(values: list[int], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _position(rows: list[list[NodePosition]]) -> Size:
    top = MARGIN
    for row in rows:
        tallest = max((one.height for one in row), default=0.0)
        x = 0.0
        for one in row:
            # An edge that passes through is as high as the tallest box in the layer.
            one.height = one.height or tallest
            one.x, one.y = x + one.width / 2, top + (tallest - one.height) / 2
            x += one.width + GAP
        top += tallest + ROW_GAP
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            _move(row, is_down=is_down)
    everything = [one for row in rows for one in row]
    left = min((one.x - one.width / 2 for one in everything), default=0.0)
    for one in everything:
        one.x += MARGIN - left
    right = max((one.x + one.width / 2 for one in everything), default=0.0)
    return right + MARGIN, top - ROW_GAP + MARGIN


def _move(row: list[NodePosition], *, is_down: bool) -> None:
    """Move items towards their neighbours without overlap: the mean of pushing from the left and from the right."""
    wanted = [_wanted(one, is_down=is_down) for one in row]
    rightward, leftward = list(wanted), list(wanted)
    for at in range(1, len(row)):
        rightward[at] = max(rightward[at], rightward[at - 1] + _apart(row[at - 1], row[at]))
        leftward[-at - 1] = min(leftward[-at - 1], leftward[-at] - _apart(row[-at - 1], row[-at]))
    for one, right, left in zip(row, rightward, leftward, strict=True):
        one.x = (right + left) / 2


def _wanted(place: NodePosition, *, is_down: bool) -> float:
    near = _near(place, is_down=is_down)
    return sum(one.x for one in near) / len(near) if near else place.x


def _apart(one: NodePosition, other: NodePosition) -> float:
    return (one.width + other.width) / 2 + GAP
