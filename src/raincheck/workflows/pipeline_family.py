"""Workflows that run each other as steps."""

from collections.abc import Iterator, Mapping

from raincheck.workflows.common_model import WorkflowModel
from raincheck.workflows.faults import Fault
from raincheck.workflows.machine_model import MachineModel
from raincheck.workflows.pipeline_model import PipelineModel
from raincheck.workflows.source import Source
from raincheck.workflows.yaml_values import Route


def cycle_faults(models: Mapping[str, WorkflowModel], sources: Mapping[str, Source]) -> Iterator[Fault]:
    """Workflows that would run themselves, by whatever way, without end."""
    runs = {name: _children(one) for name, one in models.items()}
    for name, children in runs.items():
        way = _way_back(name, runs)
        if way is not None:
            message = f"this workflow runs itself without end: {' -> '.join(way)}"
            yield sources[name].fault(("workflows", name, *children[way[1]]), message)


def _children(model: WorkflowModel) -> dict[str, Route]:
    """The workflows that it runs, each with the way to the first place that does."""
    found: dict[str, Route] = {}
    for child, route in _runs(model):
        found.setdefault(child, route)
    return found


def _runs(model: WorkflowModel) -> Iterator[tuple[str, Route]]:
    if isinstance(model, PipelineModel):
        for place, step in enumerate(model.steps):
            if step.workflow is not None:
                yield step.workflow, ("steps", place, "workflow")
    if isinstance(model, MachineModel):
        for name, state in model.states.items():
            if state.action is not None and state.action.workflow is not None:
                yield state.action.workflow, ("states", name, "action", "workflow")


def _way_back(start: str, runs: Mapping[str, Mapping[str, Route]]) -> tuple[str, ...] | None:
    ways: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for one in runs.get(way[-1], {}):
            if one == start:
                return (*way, one)
            if one not in seen:
                seen.add(one)
                ways.append((*way, one))
    return None
