"""Where the boxes and arrows of a graph go: in layers from top to bottom, each arrow pointing down where it can.

The usual four steps. Arrows that close a circle are turned round for the while. Each box goes a layer below whatever
leads to it; layers with even numbers are for boxes, odd ones for what is written at arrows, so that nothing is written
over anything else. An arrow that passes a layer gets a place in it. Within a layer, things are ordered by where their
neighbours are, and then moved towards them as far as there is room.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from raincheck.workflows.graph.model import Edge, Graph

GAP, ROW_GAP, MARGIN = 28.0, 26.0, 24.0
"""Between things in a layer, between layers, and around it all."""

BEND = 10.0
"""The width of an arrow that passes a layer."""

SWEEPS = 8

Size = tuple[float, float]


@dataclass(slots=True, eq=False)
class Place:
    """Something that has a place in a layer: a box, what is written at an arrow, or an arrow that passes."""

    width: float
    height: float
    layer: int
    x: float = 0.0
    """Its middle."""
    y: float = 0.0
    """Its top."""
    above: "list[Place]" = field(default_factory=list["Place"])
    below: "list[Place]" = field(default_factory=list["Place"])


@dataclass(frozen=True, slots=True)
class Route:
    """The way of an arrow, and where it is written what it is."""

    edge: Edge
    places: tuple[Place, ...]
    """From its source to its target."""
    label: Place | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is."""

    boxes: Mapping[str, Place]
    routes: tuple[Route, ...]
    width: float
    height: float


def lay_out(graph: Graph, sizes: Mapping[str, Size], labels: Mapping[Edge, Size]) -> Layout:
    """Find a place for everything, by how much room each box and each label takes. Arrows to oneself take none."""
    edges = [edge for edge in dict.fromkeys(graph.edges) if edge.source != edge.target]
    turned = _turned(graph, edges)
    layers = _layers_of(graph, edges, turned)
    boxes = {name: Place(*sizes[name], layer) for name, layer in layers.items()}
    rows: list[list[Place]] = [[] for _ in range(max(layers.values(), default=0) + 1)]
    for place in boxes.values():
        rows[place.layer].append(place)
    routes = tuple(_route(edge, edge in turned, boxes, rows, labels.get(edge)) for edge in edges)
    _order(rows)
    width, height = _position(rows)
    return Layout(boxes, routes, width, height)


def _turned(graph: Graph, edges: Iterable[Edge]) -> set[Edge]:
    """Arrows that lead back to where one comes from. From the start, in the order of the file."""
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
    """Each two below the lowest of those that lead to it: between them is room for what is written at arrows."""
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
    edge: Edge, is_turned: bool, boxes: Mapping[str, Place], rows: list[list[Place]], label: Size | None
) -> Route:
    upper, lower = (edge.target, edge.source) if is_turned else (edge.source, edge.target)
    way, written = [boxes[upper]], None
    for layer in range(boxes[upper].layer + 1, boxes[lower].layer):
        if label is not None and written is None:
            place = written = Place(*label, layer)
        else:
            place = Place(BEND, 0.0, layer)
        rows[layer].append(place)
        way.append(place)
    way.append(boxes[lower])
    for one, next_one in pairwise(way):
        one.below.append(next_one)
        next_one.above.append(one)
    return Route(edge, tuple(reversed(way) if is_turned else way), written)


def _order(rows: list[list[Place]]) -> None:
    """So that few arrows cross: by the middle of what is above, then of what is below, and again."""
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            ranks = {one: rank for other in rows for rank, one in enumerate(other)}
            row.sort(key=lambda one: _middle([ranks[near] for near in _near(one, is_down=is_down)], ranks[one]))


def _near(place: Place, *, is_down: bool) -> list[Place]:
    return place.above if is_down else place.below


def _middle(values: list[int], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _position(rows: list[list[Place]]) -> Size:
    top = MARGIN
    for row in rows:
        tallest = max((one.height for one in row), default=0.0)
        x = 0.0
        for one in row:
            # An arrow passes beside boxes of any height.
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


def _move(row: list[Place], *, is_down: bool) -> None:
    """Towards their neighbours, without passing each other: the mean of pushing from the left and from the right."""
    wanted = [_wanted(one, is_down=is_down) for one in row]
    rightward, leftward = list(wanted), list(wanted)
    for at in range(1, len(row)):
        rightward[at] = max(rightward[at], rightward[at - 1] + _apart(row[at - 1], row[at]))
        leftward[-at - 1] = min(leftward[-at - 1], leftward[-at] - _apart(row[-at - 1], row[-at]))
    for one, right, left in zip(row, rightward, leftward, strict=True):
        one.x = (right + left) / 2


def _wanted(place: Place, *, is_down: bool) -> float:
    near = _near(place, is_down=is_down)
    return sum(one.x for one in near) / len(near) if near else place.x


def _apart(one: Place, other: Place) -> float:
    return (one.width + other.width) / 2 + GAP
