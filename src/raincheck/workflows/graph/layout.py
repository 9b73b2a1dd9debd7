"""Layered layout of a graph: from top to bottom, with edges pointing down where possible.

It takes the usual four steps. Edges that close a cycle are reversed for the layout. Each box goes in a layer below all
boxes that lead to it: even layers hold boxes and odd layers hold edge labels, so that no text overlaps anything. An
edge that passes through a layer gets a position in it. Within a layer, items are ordered by the positions of their
neighbours, and then moved towards them as far as there is space.
"""

from collections.abc import Callable, Iterable, Mapping
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
    positions: tuple[NodePosition, ...]
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
    """Position all boxes and edges, by the size of each box and each label. Edges from a box to itself are ignored."""
    edges = [edge for edge in dict.fromkeys(graph.edges) if edge.source != edge.target]
    back_edges = _back_edges(graph, edges)
    layers = _layers_of(graph, edges, back_edges)
    boxes = {name: NodePosition(*sizes[name], layer) for name, layer in layers.items()}
    rows: list[list[NodePosition]] = [[] for _ in range(max(layers.values(), default=0) + 1)]
    for position in boxes.values():
        rows[position.layer].append(position)
    routes = tuple(_route(edge, edge in back_edges, boxes, rows, labels.get(edge)) for edge in edges)
    _order(rows)
    width, height = _position(rows)
    return Layout(boxes, routes, width, height)


def _back_edges(graph: Graph, edges: Iterable[Edge]) -> set[Edge]:
    """Return the edges that close a cycle, walking from the start in the order of the file."""
    out: dict[str, list[Edge]] = {node.name: [] for node in graph.nodes}
    for edge in edges:
        out[edge.source].append(edge)
    back_edges, open_names, done = set[Edge](), set[str](), set[str]()
    for first in sorted(graph.nodes, key=lambda node: not node.is_start):
        stack = [(first.name, iter(out[first.name]))] if first.name not in done else []
        open_names.update(name for name, _ in stack)
        while stack:
            name, remaining = stack[-1]
            edge = next(remaining, None)
            if edge is None:
                stack.pop()
                open_names.discard(name)
                done.add(name)
            elif edge.target in open_names:
                back_edges.add(edge)
            elif edge.target not in done:
                open_names.add(edge.target)
                stack.append((edge.target, iter(out[edge.target])))
    return back_edges


def _layers_of(graph: Graph, edges: list[Edge], back_edges: set[Edge]) -> dict[str, int]:
    """Put each box two layers below its lowest predecessor: the layer between them is for edge labels."""
    downward = [(edge.target, edge.source) if edge in back_edges else (edge.source, edge.target) for edge in edges]
    into: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for source, target in downward:
        into[target].append(source)
    layers: dict[str, int] = {}
    waiting = list(into)
    while waiting:
        ready = [name for name in waiting if all(source in layers for source in into[name])]
        layers |= {name: max((layers[source] + 2 for source in into[name]), default=0) for name in ready}
        waiting = [name for name in waiting if name not in layers]
    return {name: layers[name] for name in into}


def _route(
    edge: Edge, is_reversed: bool, boxes: Mapping[str, NodePosition], rows: list[list[NodePosition]], label: Size | None
) -> EdgeRoute:
    upper, lower = (edge.target, edge.source) if is_reversed else (edge.source, edge.target)
    positions, label_position = [boxes[upper]], None
    for layer in range(boxes[upper].layer + 1, boxes[lower].layer):
        if label is not None and label_position is None:
            position = label_position = NodePosition(*label, layer)
        else:
            position = NodePosition(BEND, 0.0, layer)
        rows[layer].append(position)
        positions.append(position)
    positions.append(boxes[lower])
    for above, below in pairwise(positions):
        above.below.append(below)
        below.above.append(above)
    return EdgeRoute(edge, tuple(reversed(positions) if is_reversed else positions), label_position)


def _order(rows: list[list[NodePosition]]) -> None:
    """Order each layer so that few edges cross: by the mean position of the items above, then below, repeatedly."""
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            ranks = {item: rank for items in rows for rank, item in enumerate(items)}
            row.sort(key=lambda item: _mean_of_neighbours(item, ranks.__getitem__, is_down=is_down))


def _mean_of_neighbours(item: NodePosition, value_of: Callable[[NodePosition], float], *, is_down: bool) -> float:
    """Return the mean value of the neighbours in the previous layer of the sweep, or the item's own without any."""
    neighbours = (item.above if is_down else item.below) or [item]
    return sum(map(value_of, neighbours)) / len(neighbours)


def _position(rows: list[list[NodePosition]]) -> Size:
    top = MARGIN
    for row in rows:
        tallest = max((item.height for item in row), default=0.0)
        x = 0.0
        for item in row:
            # An edge that passes through is as high as the tallest box in the layer.
            item.height = item.height or tallest
            item.x, item.y = x + item.width / 2, top + (tallest - item.height) / 2
            x += item.width + GAP
        top += tallest + ROW_GAP
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            _move(row, is_down=is_down)
    items = [item for row in rows for item in row]
    left = min((item.x - item.width / 2 for item in items), default=0.0)
    for item in items:
        item.x += MARGIN - left
    right = max((item.x + item.width / 2 for item in items), default=0.0)
    return right + MARGIN, top - ROW_GAP + MARGIN


def _move(row: list[NodePosition], *, is_down: bool) -> None:
    """Move items towards their neighbours without overlap: the mean of pushing from the left and from the right."""
    preferred = [_mean_of_neighbours(item, lambda near: near.x, is_down=is_down) for item in row]
    rightward, leftward = list(preferred), list(preferred)
    for index in range(1, len(row)):
        rightward[index] = max(rightward[index], rightward[index - 1] + _distance(row[index - 1], row[index]))
        leftward[-index - 1] = min(leftward[-index - 1], leftward[-index] - _distance(row[-index - 1], row[-index]))
    for item, right, left in zip(row, rightward, leftward, strict=True):
        item.x = (right + left) / 2


def _distance(left: NodePosition, right: NodePosition) -> float:
    return (left.width + right.width) / 2 + GAP
