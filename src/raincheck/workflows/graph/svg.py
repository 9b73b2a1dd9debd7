"""Render a workflow as a self-contained SVG picture, in the viewer's light or dark theme.

The picture needs no fonts, no scripts and no network.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from xml.sax.saxutils import escape

from raincheck.workflows.graph.layout import MARGIN, EdgeRoute, Layout, NodePosition, lay_out
from raincheck.workflows.graph.model import Graph, Node, NodeKind, clip

CHARACTER, LINE, PADDING = 6.9, 17.0, 12.0
"""The highest average width of a character, the height of a line, and the padding of a box, in the font used."""

MIN_WIDTH = 72.0

LOOP = 34.0
"""The width of an edge that leads back to its own box."""

HEADING = 30.0

STYLE = """
svg { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; background: #fff }
.box { fill: #f4f6f8; stroke: #57606a } .name { font-weight: 600; fill: #1f2328 } .line { fill: #57606a }
.reach { fill: #e7f1fb; stroke: #0b63b5 } .ask { fill: #fff6db; stroke: #9a6700 }
.wait { fill: #f3ecfb; stroke: #7a4fb5 }
.success { fill: #e3f5e6; stroke: #1a7f37 } .failure { fill: #fde8e8; stroke: #c62828 }
.cancel { fill: #eceef0; stroke: #6e7781; stroke-dasharray: 5 3 }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.3 } .exception { stroke: #c62828; stroke-dasharray: 5 3 }
.head { fill: #57606a } .written { fill: #1f2328; font-size: 11px } .paper { fill: #fff } .start { fill: #1f2328 }
.heading { font-size: 15px; font-weight: 600; fill: #1f2328 }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117 } .paper { fill: #0d1117 } .box { fill: #1c2128; stroke: #8b949e }
.name, .written, .heading { fill: #e6edf3 } .line { fill: #9da7b3 } .start, .head { fill: #9da7b3 }
.arrow { stroke: #8b949e }
.reach { fill: #10243b; stroke: #58a6ff } .ask { fill: #2e2508; stroke: #d4a72c }
.wait { fill: #241a36; stroke: #b28ae6 }
.success { fill: #10291a; stroke: #3fb950 } .failure { fill: #331415; stroke: #f85149 } .exception { stroke: #f85149 }
.cancel { fill: #22272e; stroke: #8b949e } }
"""


def as_svg(graph: Graph) -> str:
    """Return the SVG picture of a graph."""
    loops = _loops_of(graph)
    # With the same space on both sides: positions are centres.
    sizes = {node.name: _total_size(node, loops.get(node.name)) for node in graph.nodes}
    labels = {edge: (_width(edge.label) + 8, LINE) for edge in graph.edges if edge.label}
    layout = lay_out(graph, sizes, labels)
    return "\n".join([*_lines(graph, layout, loops), ""])


def _loops_of(graph: Graph) -> dict[str, str]:
    """Return the label of each box's edge to itself. All such edges of a box share one."""
    loops = [edge for edge in graph.edges if edge.source == edge.target]
    names = dict.fromkeys(edge.source for edge in loops)
    return {name: clip(", ".join(edge.label for edge in loops if edge.source == name)) for name in names}


def _total_size(node: Node, loop: str | None) -> tuple[float, float]:
    width, height = _size_of(node)
    return width + (0 if loop is None else 2 * (LOOP + _width(loop))), height


def _lines(graph: Graph, layout: Layout, loops: Mapping[str, str]) -> Iterator[str]:
    width, height = max(layout.width, _width(graph.name) * 1.4 + 2 * MARGIN), layout.height + HEADING
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img">'
    )
    yield f"<title>{_text(graph.name)}</title>"
    if graph.description:
        yield f"<desc>{_text(graph.description)}</desc>"
    yield f"<style>{STYLE}</style>"
    yield (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path class="head" d="M0 0 8 4 0 8z"/></marker></defs>'
    )
    yield f'<text class="heading" x="{MARGIN:.0f}" y="28">{_text(graph.name)}</text>'
    yield f'<g transform="translate(0 {HEADING:.0f})">'
    for route in layout.routes:
        yield _arrow(_path(route), is_exception=route.edge.is_exception)
    for node in graph.nodes:
        if node.name in loops:
            yield from _loop(loops[node.name], node, layout.boxes[node.name])
    for route in layout.routes:
        if route.label is not None:
            yield from _edge_label(route.edge.label, route.label)
    for node in graph.nodes:
        yield from _box(node, layout.boxes[node.name])
    yield "</g>"
    yield "</svg>"


def _size_of(node: Node) -> tuple[float, float]:
    widest = max(_width(line) for line in (node.name, *node.lines))
    return max(MIN_WIDTH, widest + 2 * PADDING), LINE * (1 + len(node.lines)) + PADDING


def _width(text: str) -> float:
    # Chinese, Japanese and Korean characters, and most pictographs, are about twice as wide.
    return sum(CHARACTER if ord(character) < 0x2E80 else 2 * CHARACTER for character in text)


def _box(node: Node, position: NodePosition) -> Iterator[str]:
    width, height = _size_of(node)
    left, radius = position.x - width / 2, 6 if node.kind in (NodeKind.WORK, NodeKind.REACH, NodeKind.ASK) else 16
    yield f'<g class="node"><title>{_text(" · ".join((node.name, *node.lines)))}</title>'
    if node.is_start:
        yield f'<circle class="start" cx="{position.x:.1f}" cy="{position.y - 12:.1f}" r="4"/>'
    yield (
        f'<rect class="box {node.kind}" x="{left:.1f}" y="{position.y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="{radius}"/>'
    )
    for number, line in enumerate((node.name, *node.lines)):
        kind, y = "line" if number else "name", position.y + PADDING / 2 + LINE * (number + 0.75)
        yield f'<text class="{kind}" x="{position.x:.1f}" y="{y:.1f}" text-anchor="middle">{_text(line)}</text>'
    yield "</g>"


def _edge_label(label: str, position: NodePosition) -> Iterator[str]:
    left = position.x - position.width / 2
    yield (
        f'<rect class="paper" x="{left:.1f}" y="{position.y:.1f}" width="{position.width:.1f}" '
        f'height="{position.height:.1f}"/>'
    )
    y = position.y + 0.75 * LINE
    yield f'<text class="written" x="{position.x:.1f}" y="{y:.1f}" text-anchor="middle">{_text(label)}</text>'


def _path(route: EdgeRoute) -> str:
    """Return a curve that leaves straight, bends softly between layers, and arrives straight."""
    first, last = route.positions[0], route.positions[-1]
    is_down = first.y < last.y
    points = [(first.x, first.y + first.height if is_down else first.y)]
    for position in (position for position in route.positions[1:-1] if position.height):
        ends = [(position.x, position.y), (position.x, position.y + position.height)]
        points += ends if is_down else reversed(ends)
    points.append((last.x, last.y if is_down else last.y + last.height))
    path = "M{:.1f} {:.1f}".format(*points[0])
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = (y1 + y2) / 2
        path += f" C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    return path


def _arrow(path: str, *, is_exception: bool = False) -> str:
    kind = "arrow exception" if is_exception else "arrow"
    return f'<path class="{kind}" d="{path}" marker-end="url(#head)"/>'


def _loop(label: str, node: Node, position: NodePosition) -> Iterator[str]:
    right, top, low = (
        position.x + _size_of(node)[0] / 2,
        position.y + position.height * 0.25,
        position.y + position.height * 0.75,
    )
    out = right + LOOP
    yield _arrow(f"M{right:.1f} {top:.1f} C{out:.1f} {top:.1f} {out:.1f} {low:.1f} {right:.1f} {low:.1f}")
    y = position.y + position.height / 2 + 4
    yield f'<text class="written" x="{right + LOOP * 0.8:.1f}" y="{y:.1f}">{_text(label)}</text>'


def _text(text: str) -> str:
    """Escape a text, and replace characters that XML can't represent."""
    return escape("".join(character if character.isprintable() else " " for character in text))
