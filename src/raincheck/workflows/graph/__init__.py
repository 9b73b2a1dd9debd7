"""Draw workflows as Mermaid text or as SVG."""

from typing import cast

from raincheck.workflows.definition import WorkflowDefinition
from raincheck.workflows.graph.mermaid import as_mermaid
from raincheck.workflows.graph.model import Graph, graph_of_machine, graph_of_pipeline
from raincheck.workflows.graph.svg import as_svg
from raincheck.workflows.machines.machine import Machine
from raincheck.workflows.pipelines.pipeline import Pipeline

__all__ = ["as_mermaid", "as_svg", "graph_of"]


def graph_of(definition: WorkflowDefinition) -> Graph:
    """Return the graph of a workflow."""
    if isinstance(definition, Pipeline):
        return graph_of_pipeline(definition)
    return graph_of_machine(cast("Machine", definition))
