"""Workflows as pictures: what there is to draw of each kind, as Mermaid text or as SVG."""

from typing import cast

from raincheck.workflows.definition import Definition
from raincheck.workflows.graph_machine import graph_of_machine
from raincheck.workflows.graph_mermaid import as_mermaid
from raincheck.workflows.graph_model import Graph
from raincheck.workflows.graph_pipeline import graph_of_pipeline
from raincheck.workflows.graph_svg import as_svg
from raincheck.workflows.machine import Machine
from raincheck.workflows.pipeline import Pipeline

__all__ = ["as_mermaid", "as_svg", "graph_of"]


def graph_of(definition: Definition) -> Graph:
    """What there is to draw of a workflow."""
    if isinstance(definition, Pipeline):
        return graph_of_pipeline(definition)
    return graph_of_machine(cast("Machine", definition))
