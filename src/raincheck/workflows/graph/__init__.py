"""Draw workflows as Mermaid text or as SVG."""

from raincheck.workflows.graph.mermaid import as_mermaid
from raincheck.workflows.graph.model import graph_of
from raincheck.workflows.graph.svg import as_svg

__all__ = ["as_mermaid", "as_svg", "graph_of"]
