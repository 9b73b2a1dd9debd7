"""Workflows that run each other as steps."""

from collections.abc import Iterator, Mapping

from raincheck.workflows.definition import Definition
from raincheck.workflows.faults import Fault
from raincheck.workflows.pipeline import Pipeline
from raincheck.workflows.source import Source


def cycle_faults(definitions: Mapping[str, Definition], sources: Mapping[str, Source]) -> Iterator[Fault]:
    """Workflows that would run themselves, by whatever way, without end."""
    runs = {name: _children(one) for name, one in definitions.items() if isinstance(one, Pipeline)}
    for name in runs:
        way = _way_back(name, runs)
        if way is not None:
            place = runs[name][way[1]]
            message = f"this workflow runs itself without end: {' -> '.join(way)}"
            yield sources[name].fault(("workflows", name, "steps", place, "workflow"), message)


def _children(pipeline: Pipeline) -> dict[str, int]:
    """The workflows that it runs, each with the place of the first step that does."""
    found: dict[str, int] = {}
    for place, step in enumerate(pipeline.model.steps):
        if step.workflow is not None:
            found.setdefault(step.workflow, place)
    return found


def _way_back(start: str, runs: Mapping[str, Mapping[str, int]]) -> tuple[str, ...] | None:
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
