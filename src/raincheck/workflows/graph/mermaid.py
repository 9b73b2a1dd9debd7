"""Render a workflow as Mermaid text, which GitHub, GitLab and many editors draw."""

from collections.abc import Iterator

from raincheck.workflows.graph.model import Edge, Graph, Node, NodeKind

SHAPES = {
    NodeKind.WORK: ("[", "]"),
    NodeKind.REACH: ("[[", "]]"),
    NodeKind.ASK: ("[/", "/]"),
    NodeKind.WAIT: ("([", "])"),
    NodeKind.STATE: ("(", ")"),
    NodeKind.SUCCESS: ("(((", ")))"),
    NodeKind.FAILURE: ("(((", ")))"),
    NodeKind.CANCEL: ("(((", ")))"),
}

COLOURS = {
    NodeKind.ASK: "fill:#fff3cd,stroke:#b8860b,color:#222",
    NodeKind.SUCCESS: "fill:#d4edda,stroke:#2e7d32,color:#222",
    NodeKind.FAILURE: "fill:#f8d7da,stroke:#c62828,color:#222",
    NodeKind.CANCEL: "fill:#e2e3e5,stroke:#616161,color:#222",
}

ESCAPED = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\\": "#92;"}
"""Characters that would end a quoted text, or have a meaning in it."""


def as_mermaid(graph: Graph) -> str:
    """Return the text of a flow chart."""
    return "\n".join([*_lines(graph), ""])


def _lines(graph: Graph) -> Iterator[str]:
    # Names may be keywords of Mermaid, such as `end`, so the ids of boxes are numbers.
    ids = {node.name: f"n{number}" for number, node in enumerate(graph.nodes, 1)}
    yield "flowchart TD"
    for node in graph.nodes:
        yield f"    {ids[node.name]}{_box(node)}"
    for number, node in enumerate((node for node in graph.nodes if node.is_start), 1):
        yield f"    start{number}(( )) --> {ids[node.name]}"
    for edge in graph.edges:
        yield f"    {ids[edge.source]} {_arrow(edge)} {ids[edge.target]}"
    for kind, colours in COLOURS.items():
        members = [ids[node.name] for node in graph.nodes if node.kind is kind]
        if members:
            yield f"    classDef {kind} {colours}"
            yield f"    class {','.join(members)} {kind}"


def _box(node: Node) -> str:
    start, end = SHAPES[node.kind]
    return f'{start}"{"<br/>".join(map(_escaped, (node.name, *node.lines)))}"{end}'


def _arrow(edge: Edge) -> str:
    line = "-.->" if edge.is_exception else "-->"
    return f'{line}|"{_escaped(edge.label)}"|' if edge.label else line


def _escaped(text: str) -> str:
    return "".join(ESCAPED.get(character, character) if character.isprintable() else " " for character in text)
